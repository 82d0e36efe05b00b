//! Secrets here are put together from pieces, so that no scanner takes this file for a leak.

use std::borrow::Cow;

use proptest::prelude::*;

use super::redact;

/// Letters and digits as a provider would generate them.
const BODY: &str = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";

/// Checks the output for an input, and that a second pass changes nothing.
#[track_caller]
fn check(given: &str, wanted: &str) {
    assert_eq!(redact(given), wanted);
    assert_eq!(redact(wanted), wanted, "second pass");
}

#[track_caller]
fn unchanged(text: &str) {
    assert!(matches!(redact(text), Cow::Borrowed(_)), "{text:?} became {:?}", redact(text));
}

fn provider_keys() -> Vec<(String, &'static str)> {
    let with = |prefix: &str| format!("{prefix}{BODY}");
    let mut keys: Vec<(String, &str)> = Vec::new();
    for prefix in ["sk-", "sk-ant-api03-", "sk-proj-", "sk_live_", "rk_live_", "pk_live_", "xai-"] {
        keys.push((with(prefix), "key"));
    }
    for prefix in
        ["ghp_", "gho_", "ghs_", "github_pat_11AB_", "glpat-", "xoxb-1234-", "xoxp-12-", "hf_", "npm_"]
    {
        keys.push((with(prefix), "token"));
    }
    keys.push((with("pypi-AgEI"), "token"));
    keys.push((with("ya29."), "token"));
    keys.push((format!("SG.{}.{BODY}", &BODY[..22]), "key"));
    keys.push((format!("AKIA{}", &"QWERTYUIOPASDFGH"), "key"));
    keys.push((format!("ASIA{}", &"QW3RTYU1OPASDFGH"), "key"));
    keys.push((format!("AIza{}", &BODY[..35]), "key"));
    keys.push((format!("eyJ{BODY}.{BODY}.{BODY}"), "token"));
    keys
}

#[test]
fn provider_keys_go_by_their_prefix() {
    for (key, kind) in provider_keys() {
        check(&format!("Use {key}, please."), &format!("Use [redacted:{kind}], please."));
        check(&format!("{{\"k\":\"{key}\"}}"), &format!("{{\"k\":\"[redacted:{kind}]\"}}"));
        check(&key, &format!("[redacted:{kind}]"));
        unchanged(&format!("x{key}"));
    }
}

#[test]
fn private_keys_go_whole_or_cut() {
    let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC";
    let begin = concat!("-----BEGIN RSA ", "PRIVATE KEY-----");
    let end = concat!("-----END RSA ", "PRIVATE KEY-----");
    check(&format!("a\n{begin}\n{line}\n{line}\n{end}\nb"), "a\n[redacted:key]\nb");
    check(&format!("a\n{begin}\n{line}\n{line}"), "a\n[redacted:key]");
    check(&format!("a\n{begin}\n{line}\n{line}\nthen it went on"), "a\n[redacted:key]\nthen it went on");
    check(&format!("it said\n{line}\n{line}\n{end}\nb"), "it said\n[redacted:key]\nb");
    check(&format!("\"k\": \"{begin}\\n{line}\\n{end}\\n\""), "\"k\": \"[redacted:key]\\n\"");
    unchanged("-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END CERTIFICATE-----");
}

#[test]
fn headers_keep_their_scheme() {
    check(&format!("Authorization: Bearer {BODY}"), "Authorization: Bearer [redacted:token]");
    check("Authorization: Basic dXNlcjpwYXNzd29yZDE=", "Authorization: Basic [redacted:password]");
    check(&format!("-H 'Authorization: Bearer {BODY}' -v"), "-H 'Authorization: Bearer [redacted:token]' -v");
    check(
        &format!("{{\"Authorization\": \"Bearer {BODY}\"}}"),
        "{\"Authorization\": \"Bearer [redacted:token]\"}",
    );
    check(&format!("x-api-key: {BODY}"), "x-api-key: [redacted:key]");
    check(&format!("sent bearer {BODY}."), "sent bearer [redacted:token].");
}

#[test]
fn assignments_in_every_form() {
    check("PASSWORD=hunter", "PASSWORD=[redacted:password]");
    check("export DB_PASSWORD='p@ss w0rd!'; run", "export DB_PASSWORD='[redacted:password]'; run");
    check("DB_PASS=geheim77 go", "DB_PASS=[redacted:password] go");
    check(r#"{"pass": "geheim77"}"#, r#"{"pass": "[redacted:password]"}"#);
    check("password -> hunter2", "password -> [redacted:password]");
    check("- name: DB_PASSWORD\n  value: hunter22", "- name: DB_PASSWORD\n  value: [redacted:password]");
    check(
        r#"{"name": "password", "value": "hunter22"}"#,
        r#"{"name": "password", "value": "[redacted:password]"}"#,
    );
    check("curl -u ann:hunter22 https://x.example", "curl -u ann:[redacted:password] https://x.example");
    check("PGPASSWORD=letmein psql", "PGPASSWORD=[redacted:password] psql");
    check(
        r#"{"password": "hunter2", "user": "ann"}"#,
        r#"{"password": "[redacted:password]", "user": "ann"}"#,
    );
    check(r#"{\"password\": \"hunter2\"}"#, r#"{\"password\": \"[redacted:password]\"}"#);
    check(r#"{"clientSecret":"abc-123-def"}"#, r#"{"clientSecret":"[redacted:key]"}"#);
    check("password: hunter2\nuser: ann", "password: [redacted:password]\nuser: ann");
    check("api_key: 9f8e7d6c5b4a", "api_key: [redacted:key]");
    check("aws_secret_access_key = abcDEF123+/x", "aws_secret_access_key = [redacted:key]");
    check("config['password'] = 'swordfish'", "config['password'] = '[redacted:password]'");
    check("GET /a?token=abc123def&page=2", "GET /a?token=[redacted:token]&page=2");
    check("GET /a?page=2&api_key=abc123def#top", "GET /a?page=2&api_key=[redacted:key]#top");
    check("mysql --password hunter2 -u ann", "mysql --password [redacted:password] -u ann");
    check("mysql --password=hunter -u ann", "mysql --password=[redacted:password] -u ann");
    check("Server=db;User=ann;Password=hunter2;", "Server=db;User=ann;Password=[redacted:password];");
    check("<password>hunter2</password>", "<password>[redacted:password]</password>");
    check("CREATE USER ann PASSWORD 'hunter2'", "CREATE USER ann PASSWORD '[redacted:password]'");
    check("OPENAI_KEY=abcdef0123456789abcdef01", "OPENAI_KEY=[redacted:key]");
    check("PASSWORD=abc1\\nUSER=ann", "PASSWORD=[redacted:password]\\nUSER=ann");
}

#[test]
fn said_in_a_sentence() {
    check("My password is hunter2!", "My password is [redacted:password]");
    check("the API key is 9f8e7d6c5b4a.", "the API key is [redacted:key].");
    check("I changed the password to Tr0ub4dor&3, ok?", "I changed the password to [redacted:password], ok?");
    check("The password is \"swordfish\".", "The password is \"[redacted:password]\".");
    check("API key: 9f8e7d6c5b4a", "API key: [redacted:key]");
    check(
        "The password for the office wifi is hunter22.",
        "The password for the office wifi is [redacted:password].",
    );
    check(
        "log in as ann with password hunter22, then",
        "log in as ann with password [redacted:password], then",
    );
    check("contraseña: hunter22", "contraseña: [redacted:password]");
    check("密码：hunter22，谢谢", "密码：[redacted:password]，谢谢");
    check("mot de passe : hunter22", "mot de passe : [redacted:password]");
    check("Пароль: hunter22", "Пароль: [redacted:password]");
}

#[test]
fn addresses_keep_user_and_host() {
    check("postgres://ann:p%40ss@db:5432/x", "postgres://ann:[redacted:password]@db:5432/x");
    check("redis://:hunter2@cache/0", "redis://:[redacted:password]@cache/0");
    check("mongodb://ann:a/b@c1@host/x", "mongodb://ann:[redacted:password]@host/x");
    check(&format!("https://{BODY}@git.example/x"), "https://[redacted:token]@git.example/x");
    check(
        &format!("https://ghp_{BODY}:x-oauth-basic@git.example/x"),
        "https://[redacted:token]:[redacted:password]@git.example/x",
    );
    let hook = concat!("https://hooks.slack.com/", "services/");
    check(&format!("{hook}T0000/B0000/{BODY}"), &format!("{hook}[redacted:key]"));
    unchanged("postgres://ann:${PASSWORD}@db/x");
    unchanged("postgres://ann:<password>@db/x");
    unchanged("https://host:8080/a@b and git@host:path, ssh://git@host/x");
}

#[test]
fn cards_by_issuer_and_check_digit() {
    for card in [
        "4111111111111111",
        "4111 1111 1111 1111",
        "5500-0000-0000-0004",
        "3782 822463 10005",
        "6011000990139424",
    ] {
        check(&format!("card {card}, thanks"), "card [redacted:card], thanks");
        check(&format!("卡号{card}。"), "卡号[redacted:card]。");
    }
    unchanged("4111111111111112 has the wrong check digit");
    unchanged("order 4111111111111111");
    unchanged("{\"order_id\": 4111111111111111}");
    unchanged("Order no. 4111111111111111");
    unchanged(
        "44111111111111111111, 4111111111111111abc, ab-4111111111111111, 4111111111111111.5, 0.4111111111111111",
    );
    unchanged("1700000000000 1700000000000000 20240131123456");
    unchanged("0000 0000 0000 0000");
    unchanged("12 4111 1111 1111 1111");
}

#[test]
fn plain_words_about_secrets_stay() {
    for text in [
        "max_tokens: 4000, 1,234 tokens, token_count=5, tokens: 8, token: 4000, token=5",
        "MAX_TOKENS=4096 TOKEN_LIMIT=8000",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "123e4567-e89b-12d3-a456-426614174000",
        "Please reset your password. The password field is required.",
        "password: required",
        "password: str",
        "def login(user: str, password: str = None, token: Optional[str] = None):",
        "password=None, token=None",
        "password=os.environ[\"X\"]",
        "password = process.env.DB_PASSWORD1",
        "PASSWORD=${PASSWORD} TOKEN=$TOKEN KEY=<your-key> SECRET=****",
        "api_key: <your-key>, api_key=YOUR_API_KEY, \"api_key\": \"your-api-key-123\"",
        "\"password\": \"Password\", \"password\": \"********\", \"password\": \"[redacted:password]\"",
        "if password == expected1: token != other1",
        "the token is invalid; the secret is out; my password is wrong",
        "password must be at least 8 characters, password: 8 characters",
        "std::env::var(\"TOKEN\"), Token::new(x1), token::parse(y2)",
        "The tokenizer splits keys; a keyboard, monkey, passwordless, secretary",
        "--password-stdin, --token TOKEN, --api-key KEY",
        "PWD=/home/ann/src1 OLDPWD=/tmp/x1",
        "secret: my-app-tls",
        "primary_key: user_id1, PRIMARY_KEY=id1, cache_key = f1(x)",
        "next_token: abc123def, page_token=abc123def, eos_token: 50256",
        "sk-learn-something-long-name, task-1234567890abcdef1234, desk-a1b2c3d4e5f6g7h8",
        "hf_model_downloader_v2, npm_config_registry, github_pattern_1",
        "Authorization: required, Authorization header, Bearer authentication, bearer token",
        "password: SecretString, token: Vec<u8>, password: &'a str, secret: [u8; 32]",
        "[redacted:token]=hunter22 and [redacted:password] is hunter22",
        "token: bracketed!(content in input); frag_token: crate::__u32; token: _type_5; TOKEN: MAX_128BITS;",
        "ERROR_TOKEN = 0x8004400a; CREATE_PASS = 1010; clearTextPassword = 8107",
        "password reset for user 12, the token for page 2 is missing, password SHA256, secret v2, token abc123",
        "docker run -u 1000:1000 x; sudo -u ann ls; id -u root:wheel; password: !vault |; use -u name:value",
        "$token = $this->get_token1; password => $ds->{pw1}; ($text:expr, [$($token:expr2]) and $env[TOKEN1]",
        "Authorization: https://tools.example/rfc6749; webhook_secret: see https://docs.example/a1",
        "the key for order_1 is item_2, password for 2 of 3 users",
        "PASS: test_21_orders; pass: 12 of 12; --- PASS: TestOrders12 (0.01s); first_pass: run_1b2c3d4",
        "https://example.com/a:b@c?x=1, http://localhost:3000/x",
    ] {
        for line in text.split(", ").chain([text]) {
            unchanged(line);
        }
    }
}

#[test]
fn twice_is_once_where_marks_are_near() {
    for text in [
        "password=[redacted:key]hunter2",
        "4111111111111111-[redacted:key]",
        "token: abc-[redacted:token]-1",
        "sk-[redacted:key]",
        "-----END PRIVATE KEY-----[redacted:key]",
    ] {
        let once = redact(text).into_owned();
        assert_eq!(redact(&once), once);
    }
}

/// Texts in which secrets and similar strings are frequent.
fn pieces() -> impl Strategy<Value = String> {
    let fixed = prop::sample::select(vec![
        "password",
        "PASSWORD",
        "token",
        "secret",
        "api_key",
        "key",
        "=",
        ":",
        ": ",
        " = ",
        " is ",
        "\"",
        "'",
        "\\\"",
        "\\n",
        "\n",
        " ",
        "--",
        "-u ",
        "value",
        ", ",
        " for x is ",
        "-",
        "_",
        ".",
        "&",
        "?",
        "@",
        "://",
        "/",
        "hunter2",
        "abc",
        "1234567890",
        "4111111111111111",
        "4111 1111",
        "sk-",
        "ghp_",
        "eyJ",
        "AKIA",
        "SG.",
        "a1B2c3D4e5F6g7H8i9",
        "Bearer ",
        "-----BEGIN PRIVATE KEY-----",
        "-----END PRIVATE KEY-----",
        "[redacted:key]",
        "[redacted:",
        "]",
        "é",
        "密码",
        "：",
        "😀",
        "$",
        "{",
        "}",
        "<",
        ">",
        "xoxb-",
        "user",
        "host",
        "pass",
        "MIIEvQIBADANBgkqhkiG9w0B",
    ]);
    let word = prop_oneof![12 => fixed.prop_map(str::to_owned), 1 => "\\PC{0,4}"];
    prop::collection::vec(word, 0..14).prop_map(|words| words.concat())
}

/// Found by the property test below.
#[test]
fn a_key_cut_off_behind_a_scheme_is_redacted_once() {
    let begin = concat!("-----BEGIN ", "PRIVATE KEY-----");
    let text = format!("Bearer ${begin}1234567890api_keypassword");
    let once = redact(&text).into_owned();
    assert_eq!(redact(&once), once, "from {text:?}");
}

proptest! {
    #![proptest_config(epitome_testkit::budget::config(4_000))]

    #[test]
    fn redacting_twice_is_redacting_once(text in pieces()) {
        let once = redact(&text).into_owned();
        prop_assert_eq!(redact(&once), once.clone(), "from {:?}", text);
    }

    #[test]
    fn redacting_takes_any_text(text in any::<String>()) {
        let out = redact(&text);
        prop_assert_eq!(matches!(out, Cow::Borrowed(_)), out == text.as_str());
    }

    #[test]
    fn planted_secrets_vanish(before in pieces(), after in pieces(), nth in 0usize..21) {
        let keys = provider_keys();
        let (key, _) = &keys[nth % keys.len()];
        let text = format!("{before} {key} {after}");
        prop_assert!(!redact(&text).contains(key.as_str()), "{:?}", text);
    }

    #[test]
    fn ordinary_words_are_borrowed(text in "([a-z]{1,9}[ ,.]{1,2}){0,40}") {
        prop_assert!(matches!(redact(&text), Cow::Borrowed(_)));
    }
}

#[test]
fn an_option_in_a_list_of_arguments_has_its_value_behind_it() {
    for (text, hidden) in [
        (r#"["mysql", "--password", "hunter22x9"]"#, r#"["mysql", "--password", "[redacted:password]"]"#),
        (r#"["x","--token","a1b2c3d4e5f6"]"#, r#"["x","--token","[redacted:token]"]"#),
        (
            r#"{\"args\":[\"--password\",\"hunter22x9\"]}"#,
            r#"{\"args\":[\"--password\",\"[redacted:password]\"]}"#,
        ),
    ] {
        assert_eq!(redact(text), hidden);
        assert_eq!(redact(hidden), hidden);
    }
    for plain in
        [r#"["--password", "--verbose"]"#, r#"["--no-password", "x"]"#, r#"["--token-file", "/run/t1"]"#]
    {
        assert_eq!(redact(plain), plain);
    }
}

#[test]
fn a_value_that_holds_a_placeholders_word_is_a_secret_all_the_same() {
    for (text, secret) in [
        ("DB_PASSWORD=Example2024!", "Example2024!"),
        (r#"password: "Yellow_Here9""#, "Yellow_Here9"),
        ("api_key=7f3aXXXX9b2c4d5e6f708192", "7f3aXXXX9b2c4d5e6f708192"),
        ("token=abc_here_9f8e7d6c5b4a39281706", "9f8e7d6c5b4a39281706"),
    ] {
        assert!(!redact(text).contains(secret), "{}", redact(text));
    }
    for text in ["api_key=your-api-key-here", "PASSWORD=changeme", "token: xxxxxxxxxxxx"] {
        assert_eq!(redact(text), text);
    }
}
