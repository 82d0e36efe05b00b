//! The network of our own fails as it is told, and only then.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use epitome_testkit::network::{Network, Toward, When};

/// Somebody at the other end who says everything back in capital letters, and what they heard.
fn shouter() -> (SocketAddr, Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, heard) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, tell) = (stream.unwrap(), tell.clone());
            thread::spawn(move || {
                let mut bytes = [0; 1024];
                while let Ok(read @ 1..) = stream.read(&mut bytes) {
                    let _ = tell.send(bytes[..read].to_vec());
                    let _ = stream.write_all(&bytes[..read].to_ascii_uppercase());
                }
            });
        }
    });
    (address, heard)
}

fn connect(network: &Network) -> TcpStream {
    let stream = TcpStream::connect(network.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, said: &str) -> std::io::Result<String> {
    stream.write_all(said.as_bytes())?;
    let mut answer = vec![0; said.len()];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8(answer).unwrap())
}

/// Broken off, whether it was noticed when something was said or when an answer was waited for.
fn is_broken(stream: &mut TcpStream) -> bool {
    let error = ask(stream, "x").unwrap_err();
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}

#[test]
fn bytes_pass_and_an_end_is_passed_on() {
    let network = Network::to(shouter().0);
    let mut stream = connect(&network);
    let long = "a long line ".repeat(100_000);
    let (mut reads, sent) = (stream.try_clone().unwrap(), long.clone());
    let writes = thread::spawn(move || {
        stream.write_all(sent.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
    });
    let mut answer = String::new();
    reads.read_to_string(&mut answer).unwrap();
    writes.join().unwrap();
    assert!(answer == long.to_uppercase());
}

#[test]
fn a_cut_breaks_every_connection_off_until_it_heals() {
    let network = Network::to(shouter().0);
    let mut streams = [connect(&network), connect(&network)];
    for stream in &mut streams {
        assert_eq!(ask(stream, "hey").unwrap(), "HEY");
    }
    network.cut();
    assert!(streams.iter_mut().all(is_broken));
    // It may be taken before it is broken off.
    assert!(TcpStream::connect(network.address()).map_or(true, |mut stream| is_broken(&mut stream)));
    network.heal();
    let mut stream = connect(&network);
    assert_eq!(ask(&mut stream, "hey").unwrap(), "HEY");
    network.cut_once();
    assert!(is_broken(&mut stream));
    assert_eq!(ask(&mut connect(&network), "hey").unwrap(), "HEY");
}

#[test]
fn what_is_said_in_silence_arrives_when_it_heals() {
    let (address, heard) = shouter();
    let network = Network::to(address);
    let mut before = connect(&network);
    assert_eq!(ask(&mut before, "hey").unwrap(), "HEY");
    network.silence();
    let mut meanwhile = connect(&network);
    for stream in [&mut before, &mut meanwhile] {
        stream.write_all(b"psst").unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let error = stream.read(&mut [0; 4]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    }
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [b"hey"]);
    network.heal();
    for stream in [&mut before, &mut meanwhile] {
        let mut answer = [0; 4];
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"PSST");
    }
}

#[test]
fn a_delay_is_waited_for_both_ways() {
    let network = Network::to(shouter().0);
    network.delay(Duration::from_millis(40));
    let (begun, mut stream) = (Instant::now(), connect(&network));
    assert_eq!(ask(&mut stream, "hey").unwrap(), "HEY");
    assert!(begun.elapsed() >= Duration::from_millis(80));
}

#[test]
fn a_connection_breaks_when_certain_bytes_pass() {
    let (address, heard) = shouter();
    let network = Network::to(address);
    let mut other = connect(&network);

    // They do not arrive, not even in two pieces that are apart.
    network.cut_when(Toward::Database, b"commit", When::Before, 1);
    let mut stream = connect(&network);
    assert_eq!(ask(&mut stream, "begin; com").unwrap(), "BEGIN; COM");
    assert!(ask(&mut stream, "mit").is_err());
    assert_eq!((network.matches(), ask(&mut other, "commit").unwrap()), (1, "COMMIT".to_owned()));
    assert_eq!(heard.try_iter().collect::<Vec<_>>().concat(), b"begin; comcommit");

    // They arrive and their answer does not, twice.
    network.cut_when(Toward::Node, b"COMMIT", When::Before, 2);
    for _ in 0..2 {
        assert!(ask(&mut connect(&network), "commit").is_err());
        assert_eq!(heard.recv_timeout(Duration::from_secs(60)).unwrap(), b"commit");
    }
    assert_eq!((network.matches(), ask(&mut other, "commit").unwrap()), (3, "COMMIT".to_owned()));
}
