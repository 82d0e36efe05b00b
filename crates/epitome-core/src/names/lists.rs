//! Word lists of the scanner. If a word is in none of these lists, the scanner decides by the shape of the word.

/// Words before a number that say what the number identifies.
#[rustfmt::skip]
pub(super) const LABELS: [&str; 43] = [
    "account", "apartment", "apt", "build", "case", "code", "column", "error", "exit", "ext", "flight",
    "gate", "http", "invoice", "issue", "item", "level", "no", "number", "order", "page", "phase", "pid",
    "pin", "platform", "port", "pr", "reference", "release", "revision", "room", "row", "seat", "section",
    "sku", "status", "step", "suite", "table", "ticket", "track", "version", "zip",
];

/// Words after a number that say what the number counts or measures.
#[rustfmt::skip]
pub(super) const UNITS: [&str; 62] = [
    "%", "EUR", "GB", "GBP", "GHz", "GiB", "Hz", "JPY", "KB", "Kbps", "KiB", "MB", "MHz", "Mbps", "MiB",
    "TB", "TiB", "USD", "am", "bytes", "cents", "characters", "chars", "cm", "days", "dollars", "euros",
    "files", "ft", "g", "h", "hours", "kB", "kWh", "kg", "km", "lb", "lines", "m", "mg", "miles", "min",
    "minutes", "ml", "mm", "months", "ms", "people", "percent", "pm", "points", "px", "requests", "rows",
    "s", "seconds", "tests", "times", "tokens", "users", "weeks", "years",
];

/// Units in Russian and Arabic.
#[rustfmt::skip]
pub(super) const FOREIGN_UNITS: [&str; 17] = [
    "руб", "рублей", "рубля", "км", "кг", "мин", "часов", "дней", "человек", "лет", "год", "года",
    "ريال", "درهم", "دقيقة", "يوم", "ساعة",
];

/// File extensions: a dotted name that ends in one of these is a file.
#[rustfmt::skip]
pub(super) const ENDINGS: [&str; 48] = [
    "bin", "c", "cc", "cfg", "conf", "cpp", "cs", "css", "csv", "db", "env", "go", "gz", "h", "hpp",
    "html", "ini", "ipynb", "java", "jpg", "js", "json", "jsonl", "jsx", "kt", "lock", "log", "md",
    "pcap", "pdf", "php", "png", "py", "rb", "rs", "rst", "sh", "sql", "svg", "swift", "toml", "ts",
    "tsx", "txt", "xml", "yaml", "yml", "zip",
];

/// Words that begin sentences and are not names, in lower case.
#[rustfmt::skip]
pub(super) const OPENERS: [&str; 168] = [
    "a", "absolutely", "actually", "after", "all", "alright", "also", "an", "and", "any", "are",
    "aren't", "as", "at", "awesome", "because", "before", "both", "btw", "but", "by", "bye", "can",
    "can't", "come", "congrats", "cool", "could", "couldn't", "dear", "did", "didn't", "do", "does",
    "doesn't", "don't", "each", "enjoy", "every", "exactly", "find", "first", "for", "from", "get",
    "give", "go", "good", "got", "great", "haha", "has", "have", "he", "he's", "hello", "here", "here's",
    "hey", "hi", "hmm", "hold", "how", "i", "i'll", "i'm", "i've", "if", "in", "is", "isn't", "it",
    "it's", "its", "just", "keep", "let", "let's", "like", "lol", "look", "make", "maybe", "mm", "my",
    "next", "nice", "no", "not", "now", "of", "oh", "ok", "okay", "on", "once", "one", "only", "or",
    "our", "perhaps", "please", "put", "right", "see", "seems", "she", "she's", "should", "since", "so",
    "some", "sorry", "sounds", "still", "sure", "take", "tell", "thank", "thanks", "that", "that's",
    "the", "their", "then", "there", "there's", "these", "they", "they're", "this", "those", "to", "too",
    "true", "try", "uh", "um", "very", "wait", "was", "wasn't", "we", "we're", "well", "what", "what's",
    "when", "where", "which", "while", "who", "whoa", "why", "will", "with", "woah", "won't", "would",
    "wouldn't", "wow", "yeah", "yep", "yes", "you", "you're", "your", "yup",
];

/// Prefixes of the names of hidden files.
pub(super) const HIDDEN: [&str; 8] =
    [".bash", ".cargo", ".config", ".docker", ".env", ".git", ".npm", ".ssh"];

/// Months, in lower case. Together with a number, a month forms a date. Without a number, months and days of the week
/// are not names.
#[rustfmt::skip]
pub(super) const MONTHS: [&str; 35] = [
    "april", "august", "december", "february", "january", "july", "june", "march", "may", "november",
    "october", "september", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    "января", "февраля", "марта", "апреля", "мая", "июня", "июля", "августа", "сентября", "октября", "ноября",
    "декабря",
];

#[rustfmt::skip]
pub(super) const DAYS: [&str; 14] = [
    "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "mon", "tue", "wed",
    "thu", "fri", "sat", "sun",
];

/// Top-level media types, as in `text/plain`.
pub(super) const MEDIA: [&str; 8] =
    ["application", "audio", "font", "image", "message", "multipart", "text", "video"];
