//! Calls and garbage that are drawn.

use proptest::prelude::*;

use super::{Bytes, Call, OPTIONS, OWNER, files, look, read, record};
use crate::vault::Vault;

fn any_call() -> impl Strategy<Value = Call> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let parts = || prop::collection::vec(bytes(), 0..4);
    prop_oneof![
        4 => (bytes(), bytes()).prop_map(|(key, value)| Call::Append { key, value }),
        2 => (bytes(), parts()).prop_map(|(header, parts)| Call::Checkpoint { header, parts }),
        1 => parts().prop_map(|parts| Call::Abandon { parts }),
        2 => bytes().prop_map(|header| Call::Begin { header }),
        2 => bytes().prop_map(|part| Call::Write { part }),
        2 => Just(Call::Seal),
    ]
}

proptest! {
    #[test]
    fn whatever_was_called_a_cut_leaves_what_was_complete(
        calls in prop::collection::vec(any_call(), 0..12),
        cut: prop::sample::Index,
    ) {
        let mut all = vec![Call::Create];
        all.extend(calls);
        let recording = record(Bytes::default(), None, &all);
        let cut = cut.index(recording.cut_everywhere(|_, _| {}));
        let mut index = 0;
        recording.cut_everywhere(|bytes, expected| {
            if index == cut {
                look(bytes, expected);
            }
            index += 1;
        });
    }

    #[test]
    fn garbage_over_a_vault_never_gives_what_was_not_written(
        calls in prop::collection::vec(any_call(), 0..8),
        garbage in prop::collection::vec(any::<u8>(), 1..200),
        (half, at) in any::<(bool, prop::sample::Index)>(),
    ) {
        let mut all = vec![Call::Create];
        all.extend(calls);
        let recording = record(Bytes::default(), None, &all);
        let mut bytes = recording.finished();
        let file = &mut bytes[usize::from(half)];
        let at = at.index(file.len() + 1);
        file.resize(file.len().max(at + garbage.len()), 0);
        file[at..at + garbage.len()].copy_from_slice(&garbage);
        if let Ok((vault, remembered)) = Vault::open(files(&bytes), OWNER, OPTIONS)
            && let Ok(found) = read(&vault, &remembered)
        {
            prop_assert!(recording.calls.iter().any(|(_, then)| then.as_ref() == Some(&found)), "{:?}", found);
        }
    }
}
