//! Rates as small plots: inline SVG with attributes only, since the content security policy forbids inline styles.

use crate::rates::KEPT;
use maud::{Markup, html};

/// The width of a plot, in units of its view box.
const WIDTH: f64 = 240.0;
/// The height of a plot, in units of its view box.
const HEIGHT: f64 = 36.0;

/// Renders a series of rates as a plot, with the last rate at the right edge. A full series, which has one rate for each interval between
/// [`KEPT`] readings, takes the whole width; a shorter one leaves the left part empty. `words` describes the plot for screen readers.
pub(crate) fn plot(rates: &[f64], words: &str) -> Markup {
    let most = rates.iter().copied().fold(0.0, f64::max);
    let scale = if most > 0.0 { (HEIGHT - 2.0) / most } else { 0.0 };
    let steps = u32::try_from(KEPT.saturating_sub(2).max(1)).unwrap_or(1);
    let step = WIDTH / f64::from(steps);
    let points = (0_u32..).zip(rates.iter().rev());
    let points: Vec<String> = points
        .map(|(back, rate)| {
            let (x, y) = (WIDTH - f64::from(back) * step, HEIGHT - 1.0 - rate * scale);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    let line = points.join(" ");
    let last = points.last().and_then(|it| it.split_once(',')).map_or("0", |(x, _)| x);
    html! {
        svg.plot viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(words) {
            @if points.len() > 1 {
                polygon points={ (WIDTH) "," (HEIGHT) " " (line) " " (last) "," (HEIGHT) } {}
                polyline points=(line) {}
            }
            line x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
        }
    }
}

/// Formats a rate with at most one decimal place: in thousands if it is at least 10,000, in millions if it is at least 1,000,000.
pub(crate) fn shown(rate: f64) -> String {
    match rate {
        rate if rate >= 1e6 => format!("{:.1}M", rate / 1e6),
        rate if rate >= 1e4 => format!("{:.1}k", rate / 1e3),
        rate if rate >= 10.0 || rate == 0.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{plot, shown};

    #[test]
    fn the_newest_rate_is_at_the_right_and_the_highest_at_the_top() {
        let drawn = plot(&[0.0, 4.0, 2.0], "<words>").into_string();
        assert!(drawn.contains("points=\"240.0,18.0 238.0,1.0 236.0,35.0\""), "{drawn}");
        assert!(drawn.contains("aria-label=\"&lt;words&gt;\""), "{drawn}");
        for few in [&[][..], &[1.0]] {
            let drawn = plot(few, "").into_string();
            assert!(!drawn.contains("polyline") && drawn.contains("<line"), "{drawn}");
        }
        assert!(!plot(&[0.0, 0.0], "").into_string().contains("NaN"));
    }

    #[test]
    fn rates_have_few_digits() {
        let rates = [0.0, 0.25, 9.96, 123.4, 12_345.6, 2e6].map(shown);
        assert_eq!(rates, ["0", "0.2", "10.0", "123", "12.3k", "2.0M"]);
    }
}
