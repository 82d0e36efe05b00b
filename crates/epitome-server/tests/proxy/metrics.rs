//! The proxy's metrics: requests, condensed requests and saved tokens, as the usage records have them.

use epitome_testkit::prometheus::Page;

use crate::conversations::SOON;
use crate::stage::{Stage, Talk};
use crate::streams::eventually;

fn page(stage: &Stage) -> Page {
    Page::parse(&stage.server.client().get("/metrics").text()).unwrap()
}

#[test]
fn savings_agree_with_the_usage_records() {
    let stage = Stage::new(&SOON);
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    talk.go_on(&mut client, 40);
    let recorded = || stage.server.client().get("/v1/usage").ok()["proxy"]["items"][0].clone();
    eventually("all requests are recorded", || recorded()["requests"] == 40);
    let (page, line) = (page(&stage), recorded());
    assert_eq!(page.problems(), [""; 0]);
    let field = |name: &str| line[name].as_f64().unwrap();
    assert_eq!(page.sum("epitome_proxy_requests_total", &[]), field("requests"));
    assert_eq!(page.sum("epitome_proxy_condensed_requests_total", &[]), field("shorter"), "{line}");
    assert_eq!(page.sum("epitome_proxy_input_tokens_total", &[]), field("input"));
    assert_eq!(page.sum("epitome_proxy_saved_tokens_total", &[]), field("saved"));
    assert!(field("saved") > 0.0 && field("shorter") > 0.0, "{line}");
    assert_eq!(page.sum("epitome_proxy_shadow_saved_tokens_total", &[]), 0.0);
}

#[test]
fn shadow_mode_counts_its_savings_separately() {
    let stage = Stage::new(&[&SOON[..], &["--shadow"]].concat());
    let (mut talk, mut client) = (Talk::new("Ann"), stage.client());
    talk.go_on(&mut client, 40);
    eventually("the savings are recorded", || {
        page(&stage).sum("epitome_proxy_shadow_saved_tokens_total", &[]) > 0.0
    });
    let page = page(&stage);
    assert_eq!(page.sum("epitome_proxy_requests_total", &[("outcome", "shadow")]), 40.0);
    assert_eq!(page.sum("epitome_proxy_condensed_requests_total", &[]), 0.0);
    assert_eq!(page.sum("epitome_proxy_saved_tokens_total", &[]), 0.0);
}
