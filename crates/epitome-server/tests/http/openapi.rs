//! The description of the API is what `docs/openapi.json` says, so that every change of it is seen.

use std::path::Path;

use crate::server::Server;

#[test]
fn the_description_is_the_one_in_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let given = Server::start().client().get("/openapi.json").text() + "\n";
    if std::env::var_os("CHECK_UPDATE").is_some() {
        std::fs::write(&path, &given).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let first = given.lines().zip(kept.lines()).position(|(given, kept)| given != kept);
    assert!(
        given == kept,
        "the API is described otherwise than in docs/openapi.json, from line {} on; where that is meant, renew the \
         file: CHECK_UPDATE=1 cargo test -p epitome-server --test http the_description",
        first.unwrap_or_else(|| given.lines().count().min(kept.lines().count())) + 1
    );
}
