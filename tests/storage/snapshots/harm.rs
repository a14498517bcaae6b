//! Damage to a random file of a slot, which can be done and undone.

#![expect(clippy::indexing_slicing, reason = "positions are chosen within the file")]

use crate::chance::Chance;
use sexton::persist::snapshots::SlotId;
use std::collections::BTreeMap;
use std::path::Path;

/// One kind of damage.
#[derive(Clone, Debug)]
pub(crate) enum Harm {
    /// This bit of the file is flipped.
    Flip { file: String, bit: usize },
    /// The file is truncated to this length.
    Cut { file: String, len: usize },
    /// The file is removed.
    Delete { file: String },
}

impl Harm {
    /// Chooses random damage to a file of this slot or to its seal, within the bytes in use.
    pub(crate) fn choose(
        chance: &mut Chance,
        files: &BTreeMap<String, Vec<u8>>,
        slot: SlotId,
    ) -> Self {
        let folder = format!("{}/", slot.folder());
        let of_slot = |name: &&String| name.starts_with(&folder) || **name == slot.seal();
        let names: Vec<&String> = files.keys().filter(of_slot).collect();
        loop {
            let file = names[below(chance, names.len())].clone();
            let bytes = &files[&file];
            let used = bytes.iter().rposition(|byte| *byte != 0);
            let Some(used) = used else { continue };
            return match chance.below(10) {
                0 => Self::Delete { file },
                1 | 2 => Self::Cut { file, len: below(chance, used + 1) },
                _ => {
                    let bit = below(chance, (used + 1) * 8);
                    if bytes[bit / 8] == 0 {
                        continue;
                    }
                    Self::Flip { file, bit }
                }
            };
        }
    }

    fn file(&self) -> &str {
        match self {
            Self::Flip { file, .. } | Self::Cut { file, .. } | Self::Delete { file } => file,
        }
    }

    /// Damages the file.
    pub(crate) fn happen(&self, data: &Path) {
        let place = data.join(self.file());
        let mut bytes = std::fs::read(&place).expect("the file reads");
        match self {
            Self::Flip { bit, .. } => bytes[bit / 8] ^= 1 << (bit % 8),
            Self::Cut { len, .. } => bytes.truncate(*len),
            Self::Delete { .. } => {
                return std::fs::remove_file(place).expect("it is removed");
            }
        }
        std::fs::write(place, bytes).expect("a writable file");
    }

    /// Restores the file's previous content.
    pub(crate) fn undo(&self, data: &Path, files: &BTreeMap<String, Vec<u8>>) {
        let bytes = &files[self.file()];
        std::fs::write(data.join(self.file()), bytes).expect("a writable file");
    }
}

fn below(chance: &mut Chance, end: usize) -> usize {
    let end = u64::try_from(end).expect("it fits");
    usize::try_from(chance.below(end)).expect("it is less than it was")
}
