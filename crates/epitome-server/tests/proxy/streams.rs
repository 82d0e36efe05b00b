//! Answers that come piece by piece: as they are, at once, and never for ever.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::server::{Client, Server, connect, read_answer};
use crate::stage::{ROUTES, Stage, Talk, done};
use crate::upstream::{Behavior, Manner};

pub fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn request(server: &Server, body: &str) -> Vec<u8> {
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json",
        ROUTES[0].0, server.address
    );
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn streamed() -> String {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "Which berths are free?"}]})
        .to_string()
}

/// An upstream that answers each request with the pieces it is given, the next one only when it is told to go on.
fn fixed(pieces: Vec<Vec<u8>>) -> (String, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (go_on, told) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut read = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while read.read_line(&mut line).unwrap() > 2 {
                if let Some(told) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = told.trim().parse().unwrap();
                }
                line.clear();
            }
            read.read_exact(&mut vec![0; length]).unwrap();
            for piece in &pieces {
                stream.write_all(piece).unwrap();
                told.recv().unwrap();
            }
        }
    });
    (origin, go_on)
}

#[test]
fn a_stream_is_forwarded_at_once_byte_for_byte() {
    // As a server may send it: comments, odd ends of lines, letters cut in two, an event in three pieces.
    let pieces: Vec<&[u8]> = vec![
        b": hello\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"\xc3",
        b"\xa6\"},\"finish_reason\":null}]}\n\n",
        b"event: x\rdata: one\rdata: two\r\r",
        b"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion",
        b"_tokens\":3}}\n\ndata: [DONE]\n\n",
        b"\x00\xff after the end",
    ];
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-own: kept\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut all: Vec<Vec<u8>> = vec![head.to_vec()];
    all.extend(
        pieces.iter().map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat()),
    );
    all.push(b"0\r\n\r\n".to_vec());
    let (origin, go_on) = fixed(all);
    let server = Stage::serve(&origin, None, &[]);
    let mut stream = connect(&server.address);
    stream.get_mut().write_all(&request(&server, &streamed())).unwrap();
    let mut line = String::new();
    while !line.ends_with("\r\n\r\n") {
        stream.read_line(&mut line).unwrap();
    }
    assert!(line.contains("x-own: kept") && line.contains("x-epitome: untouched"), "{line}");
    for piece in &pieces {
        // The upstream says the next only now, so that this one was not held back for it.
        go_on.send(()).unwrap();
        let mut size = String::new();
        stream.read_line(&mut size).unwrap();
        assert_eq!(usize::from_str_radix(size.trim(), 16), Ok(piece.len()));
        let mut got = vec![0; piece.len() + 2];
        stream.read_exact(&mut got).unwrap();
        assert_eq!(&got[..piece.len()], *piece);
    }
    go_on.send(()).unwrap();
    let mut end = vec![0; 5];
    stream.read_exact(&mut end).unwrap();
    assert_eq!(end, b"0\r\n\r\n");
    go_on.send(()).unwrap();
}

#[test]
fn a_disconnected_caller_is_disconnected_upstream() {
    let stage = Stage::new(&[]);
    for (gone, act) in [Behavior::Stalls, Behavior::Silent].into_iter().enumerate() {
        stage.upstream.then(act);
        let mut stream = connect(&stage.server.address);
        stream.get_mut().write_all(&request(&stage.server, &streamed())).unwrap();
        eventually("it is under way", || stage.upstream.in_progress().0 == 1);
        if act == Behavior::Stalls {
            let mut some = [0; 64];
            stream.read_exact(&mut some).unwrap();
        }
        stream.get_ref().shutdown(Shutdown::Both).unwrap();
        drop(stream);
        eventually("it is given up", || stage.upstream.in_progress() == (0, gone + 1));
    }
}

#[test]
fn a_silent_upstream_times_out() {
    let stage = Stage::new(&["--set", "proxy.timeout=300ms"]);
    stage.upstream.then(Behavior::Silent);
    let late = stage.client().post(ROUTES[0].0, &serde_json::from_str(&streamed()).unwrap());
    assert_eq!((late.status, done(&late)), (504, "refused"));
    assert_eq!(late.json()["error"]["code"], "upstream-silent");
    stage.upstream.then(Behavior::Stalls);
    let mut stream = connect(&stage.server.address);
    stream.get_mut().write_all(&request(&stage.server, &streamed())).unwrap();
    // It ends, and does not look as if it had come to its end.
    assert!(read_answer(&mut stream, false).is_none());
    eventually("both are given up", || stage.upstream.in_progress() == (0, 2));
}

#[test]
fn a_response_that_breaks_off_breaks_off_for_the_client() {
    let stage = Stage::new(&[]);
    for body in [streamed(), streamed().replace("true", "false")] {
        stage.upstream.then(Behavior::Breaks);
        let mut stream = connect(&stage.server.address);
        stream.get_mut().write_all(&request(&stage.server, &body)).unwrap();
        assert!(read_answer(&mut stream, false).is_none(), "{body}");
    }
    let usage = stage.server.client().get("/v1/usage").ok();
    assert_eq!(usage["proxy"]["total"]["cut_off"], 2, "{usage}");
}

#[test]
fn an_error_response_that_breaks_off_breaks_off_for_the_client() {
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\n";
    for began in ["transfer-encoding: chunked\r\n\r\n5\r\n{\"err\r\n", "content-length: 50\r\n\r\n{\"err"] {
        let (origin, go_on) = fixed(vec![format!("{head}{began}").into_bytes()]);
        let server = Stage::serve(&origin, None, &[]);
        let mut stream = connect(&server.address);
        stream.get_mut().write_all(&request(&server, &streamed())).unwrap();
        // It closes the connection then.
        go_on.send(()).unwrap();
        assert!(read_answer(&mut stream, false).is_none(), "{began}");
    }
}

#[test]
fn a_thousand_open_streams_exhaust_nothing() {
    const MANY: usize = 1_000;
    more_files();
    let stage = Stage::with(Manner { keeps: 0, ..Manner::default() }, &[]);
    stage.upstream.always(Behavior::Stalls);
    let request = request(&stage.server, &streamed());
    let mut open: Vec<BufReader<TcpStream>> = Vec::new();
    for _ in 0..MANY {
        let mut stream = connect(&stage.server.address);
        stream.get_mut().write_all(&request).unwrap();
        open.push(stream);
    }
    for stream in &mut open {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
    }
    assert_eq!(stage.upstream.in_progress().0, MANY);
    // Others are served meanwhile, here and there.
    stage.upstream.always(None);
    let mut talk = Talk::new("Ann");
    talk.go_on(&mut stage.client(), 3);
    let mut client: Client = stage.server.client();
    client.post("/v1/sessions/s/messages", &json!([{"role": "user", "content": "Hi"}])).ok();
    let under_way = |client: &mut Client| {
        let figures = client.get("/metrics").text();
        let line = figures
            .lines()
            .find(|line| line.starts_with("epitome_http_requests_in_progress{kind=\"proxied\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok()).unwrap()
    };
    assert_eq!(under_way(&mut client), MANY);
    drop(open);
    eventually("all are given up", || stage.upstream.in_progress().0 == 0);
    let start = Instant::now();
    while under_way(&mut client) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "places are given back");
    }
}

/// Both ends of every stream are in this process, or next to it.
fn more_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn shutdown_finishes_open_streams() {
    let mut stage = Stage::new(&[]);
    stage.upstream.pace(Duration::ZERO, Duration::from_millis(150));
    let mut stream = connect(&stage.server.address);
    stream.get_mut().write_all(&request(&stage.server, &streamed())).unwrap();
    let mut some = [0; 12];
    stream.read_exact(&mut some).unwrap();
    stage.server.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&rest));
    assert!(stage.server.wait().success());
}
