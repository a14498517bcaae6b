//! A dialogue: blocks of input lines, each with the expected output. It does not depend on any actor.

use std::fmt::{self, Write as _};

const WRITES: &str = "writing to memory does not fail";

/// Executes the lines of a script.
pub(crate) trait Listener {
    /// Returns the output for the lines of one block.
    fn receive(&mut self, said: &[&str]) -> Vec<String>;
}

/// A script, as a list of blocks.
pub(crate) struct Dialogue {
    blocks: Vec<Block>,
}

struct Block {
    /// Comments and empty lines before the block.
    preface: Vec<String>,
    /// The number of the block's first line in the file, counted from one.
    line: usize,
    said: Vec<String>,
    back: Vec<String>,
}

impl Dialogue {
    /// Parses a script.
    pub(crate) fn parse(text: &str) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        let mut lines = text.lines().zip(1..).peekable();
        while lines.peek().is_some() {
            let mut preface = Vec::new();
            while let Some((line, _)) =
                lines.next_if(|(line, _)| line.is_empty() || line.starts_with('#'))
            {
                preface.push(line.to_owned());
            }
            let line = lines.peek().map_or(0, |(_, number)| *number);
            let take_until = |lines: &mut std::iter::Peekable<_>, end: &str| {
                let mut taken = Vec::new();
                for (line, _) in lines.by_ref() {
                    let line: &str = line;
                    if line == end {
                        break;
                    }
                    taken.push(line.to_owned());
                }
                taken
            };
            let said = take_until(&mut lines, "----");
            let back = take_until(&mut lines, "");
            blocks.push(Block { preface, line, said, back });
        }
        Self { blocks }
    }

    /// Sends every block to the listener, and keeps its output. Returns the differences from the recorded output, or
    /// `None` if there are none.
    pub(crate) fn run(&mut self, listener: &mut impl Listener) -> Option<String> {
        let mut difference = String::new();
        for block in self.blocks.iter_mut().filter(|block| !block.said.is_empty()) {
            let said: Vec<&str> = block.said.iter().map(String::as_str).collect();
            let back = listener.receive(&said);
            if back != block.back {
                let said = block.said.join(" | ");
                writeln!(difference, "{}: {said}", block.line).expect(WRITES);
                for line in &block.back {
                    writeln!(difference, "  - {line}").expect(WRITES);
                }
                for line in &back {
                    writeln!(difference, "  + {line}").expect(WRITES);
                }
                block.back = back;
            }
        }
        (!difference.is_empty()).then_some(difference)
    }
}

impl fmt::Display for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, block) in self.blocks.iter().enumerate() {
            for line in &block.preface {
                writeln!(f, "{line}")?;
            }
            if block.said.is_empty() {
                continue;
            }
            for line in &block.said {
                writeln!(f, "{line}")?;
            }
            writeln!(f, "----")?;
            for line in &block.back {
                writeln!(f, "{line}")?;
            }
            if place + 1 < self.blocks.len() {
                writeln!(f)?;
            }
        }
        Ok(())
    }
}
