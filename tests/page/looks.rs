//! The appearance of views: at two widths and in both color schemes, without horizontal scrolling, and without serious
//! findings of axe-core.
//!
//! `SEXTON_SCREENSHOTS` names a directory in which the screenshots are kept, and `SEXTON_AXE` the file `axe.min.js` of
//! axe-core.

use crate::left_out::left_out;
use crate::served::RUN_TOKEN;
use crate::views::{furnished, log_in};
use serde_json::Value;
use std::path::PathBuf;

const WIDTHS: [u32; 2] = [390, 1280];
/// Preferred color schemes, and the background color of the page in each.
const COLOURS: [(&str, &str); 2] = [("light", "rgb(251, 251, 250)"), ("dark", "rgb(21, 24, 27)")];

#[test]
fn views_fit_narrow_and_wide_screens_in_both_colours() {
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let kept = std::env::var_os("SEXTON_SCREENSHOTS").map(PathBuf::from);
    let mut tab = chromium.tab();
    log_in(&mut tab, &furnished.served, RUN_TOKEN);
    for width in WIDTHS {
        for (colours, ground) in COLOURS {
            tab.looks(width, colours);
            for view in furnished.views() {
                tab.load(&furnished.served.url(&view.path));
                tab.shows("As of");
                let name = format!("{}-{width}-{colours}", view.name);
                let scrolls = tab.evaluate("document.documentElement.scrollWidth");
                assert_eq!(scrolls, width, "{name} is wider than the screen");
                let back = tab.evaluate("getComputedStyle(document.body).backgroundColor");
                assert_eq!(back, ground, "{name}");
                let picture = tab.picture();
                assert!(picture.starts_with(b"\x89PNG"), "{name}");
                if let Some(directory) = &kept {
                    let file = directory.join(format!("{name}.png"));
                    std::fs::write(file, picture).expect("a writable file");
                }
            }
        }
    }
}

#[test]
fn axe_finds_nothing_serious() {
    let Some(axe) = std::env::var_os("SEXTON_AXE") else {
        left_out("what axe-core finds on the page: SEXTON_AXE does not name its axe.min.js");
        return;
    };
    let axe = std::fs::read_to_string(axe).expect("SEXTON_AXE names a file of text") + ";0";
    let Some((mut chromium, furnished)) = furnished() else {
        return;
    };
    let mut tab = chromium.tab();
    log_in(&mut tab, &furnished.served, RUN_TOKEN);
    let views = furnished.views();
    for (colours, _) in COLOURS {
        tab.looks(1280, colours);
        for view in &views {
            tab.load(&furnished.served.url(&view.path));
            tab.shows("As of");
            tab.evaluate(&axe);
            let found = tab.evaluate(
                "axe.run(document, { resultTypes: ['violations'] }).then((it) => JSON.stringify({ passes: it.passes.length, bad: it.violations.filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => [one.id, one.nodes.map((node) => node.html)]) }))",
            );
            let found = found.as_str().expect("axe-core returns its findings");
            let found: Value = serde_json::from_str(found).expect("valid JSON");
            let (passes, bad) = (found.get("passes"), found.get("bad"));
            assert!(passes.and_then(Value::as_u64) > Some(10), "{found}");
            let none = Value::Array(Vec::new());
            assert_eq!(bad, Some(&none), "{} in {colours}", view.name);
        }
    }
}
