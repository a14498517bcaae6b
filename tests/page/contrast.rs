//! The colours of the page: text can be read on its background, in both colour schemes (WCAG 2, level AA).

use std::collections::BTreeMap;

const CSS: &str = include_str!("../../http/src/page/page.css");

/// Colours of text, each with the backgrounds on which it is used.
const PAIRS: [(&str, &[&str]); 6] = [
    ("text", &["back", "raised", "bad-back", "warn-back", "good-back", "plot-fill"]),
    ("faint", &["back", "raised", "bad-back"]),
    ("link", &["back", "raised", "bad-back"]),
    ("bad", &["back", "raised", "bad-back"]),
    ("warn", &["back", "raised", "warn-back"]),
    ("good", &["back", "raised", "good-back"]),
];

/// Returns the colours of each scheme, by their names in the CSS.
fn schemes() -> Vec<BTreeMap<&'static str, [f64; 3]>> {
    let blocks = CSS.split(":root {").skip(1);
    let colours = |block: &'static str| {
        let block = block.split('}').next().expect("the text is not empty");
        let lines = block.lines().filter_map(|line| line.trim().strip_prefix("--"));
        lines.map(|line| {
            let (name, value) = line.split_once(": #").expect("a colour");
            let part = |at: usize| u8::from_str_radix(&value[at..at + 2], 16).expect("hexadecimal");
            (name, [part(0), part(2), part(4)].map(|part| f64::from(part) / 255.0))
        })
    };
    blocks.map(|block| colours(block).collect()).collect()
}

fn luminance(colour: [f64; 3]) -> f64 {
    let [red, green, blue] = colour.map(|part| {
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

fn contrast(one: [f64; 3], other: [f64; 3]) -> f64 {
    let (one, other) = (luminance(one) + 0.05, luminance(other) + 0.05);
    one.max(other) / one.min(other)
}

#[test]
fn text_can_be_read_on_what_it_stands_on() {
    assert!((contrast([0.0; 3], [1.0; 3]) - 21.0).abs() < 1e-9);
    let schemes = schemes();
    assert_eq!(schemes.len(), 2, "light and dark");
    for scheme in schemes {
        for (colour, all) in PAIRS {
            for ground in all {
                let found = contrast(scheme[colour], scheme[ground]);
                assert!(found >= 4.5, "{colour} on {ground}: {found:.1}");
            }
        }
        for ground in ["back", "raised"] {
            let found = contrast(scheme["focus"], scheme[ground]);
            assert!(found >= 3.0, "the focus on {ground}: {found:.1}");
        }
    }
}
