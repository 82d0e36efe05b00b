//! The address a server listens on.

use std::io;

use tokio::net::TcpListener;

use crate::failure::Failure;

/// Listens there, or says in one line why not.
pub(crate) async fn bind(address: &str) -> Result<TcpListener, Failure> {
    use io::ErrorKind::{AddrInUse, AddrNotAvailable, InvalidInput, PermissionDenied};
    TcpListener::bind(address).await.map_err(|error| {
        let why = match error.kind() {
            InvalidInput => {
                return Failure::Setting(format!(
                    "--listen {address}: {error}; say ADDRESS:PORT, such as 127.0.0.1:7878"
                ));
            }
            AddrInUse => "another program listens there; end it, or choose another port".to_owned(),
            PermissionDenied => format!("{error}; ports from 1024 on are free for everybody"),
            AddrNotAvailable => format!("{error}; it is no address of this machine"),
            _ => error.to_string(),
        };
        Failure::Failed(format!("cannot listen on {address}: {why}"))
    })
}
