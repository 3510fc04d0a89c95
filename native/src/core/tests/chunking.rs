//! Whatever the chunking, the bytes that come out are the same.

use proptest::prelude::*;

use super::rig::{answer, ask, spec, Rig};
use crate::core::PoolMode;

const ASKS: [&str; 22] = [
    "Q:select 1",
    "Q:begin",
    "Q:deallocate all",
    "Q:deallocate a",
    "P:a:select 1",
    "P:b:select 2",
    "P::select 3",
    "P::deallocate a",
    "P::discard all",
    "B::a",
    "B:p:b",
    "B::",
    "DS:a",
    "DP:p",
    "E:",
    "E:p",
    "CS:a",
    "S",
    "S",
    "H",
    "d:xyz",
    "c",
];

/// A server that answers every request it understands, as PostgreSQL might.
fn reply(request: &[u8], fails: bool) -> Vec<u8> {
    let text = match request[0] {
        _ if fails && request[0] != b'S' && request[0] != b'H' => "E:42601:no",
        b'Q' => "C:DEALLOCATE|Z:I",
        b'P' => "1",
        b'B' => "2",
        b'D' if request[5] == b'S' => "t:ab|n",
        b'D' => "n",
        b'E' => "D:row|C:DEALLOCATE ALL",
        b'C' => "3",
        b'S' => "Z:I",
        _ => "",
    };
    text.split('|')
        .filter(|word| !word.is_empty())
        .flat_map(answer)
        .collect()
}

fn frames(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while data.len() >= 5 {
        let length = u32::from_be_bytes([data[1], data[2], data[3], data[4]]) as usize + 1;
        if data.len() < length {
            break;
        }
        out.push(data[..length].to_vec());
        data = &data[length..];
    }
    out
}

/// Runs a conversation in chunks of the given sizes; everything both sides were sent, and the events.
fn run(
    mode: PoolMode,
    picks: &[usize],
    fails: u32,
    sizes: &[usize],
) -> (Vec<u8>, Vec<u8>, Vec<String>) {
    let mut rig = Rig::new(spec(mode));
    let (server, client) = (rig.server(), rig.client());
    let mut sizes = sizes.iter().copied().cycle();
    let mut feed = |rig: &mut Rig, id, data: &[u8]| {
        let mut at = 0;
        while at < data.len() {
            let end = (at + sizes.next().unwrap_or(1).max(1)).min(data.len());
            rig.core.received(id, &data[at..end]);
            at = end;
        }
    };
    let asked: Vec<u8> = picks
        .iter()
        .flat_map(|pick| ask(ASKS[pick % ASKS.len()]))
        .collect();
    feed(&mut rig, client, &asked);
    let to_server = rig.core.take_output(server);
    let mut skipping = false;
    let mut replies = Vec::new();
    for (at, request) in frames(&to_server).iter().enumerate() {
        if skipping && request[0] != b'S' {
            continue;
        }
        let failing = fails >> (at % 32) & 1 == 1;
        replies.extend(reply(request, failing));
        skipping = failing && !matches!(request[0], b'S' | b'H' | b'Q' | b'd' | b'c');
        if failing && request[0] == b'Q' {
            replies.extend(answer("Z:I"));
        }
    }
    feed(&mut rig, server, &replies);
    (to_server, rig.core.take_output(client), rig.events())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Random conversations cut at random give what they give uncut.
    #[test]
    fn chunking_changes_nothing(
        picks in proptest::collection::vec(0..ASKS.len(), 1..25),
        fails in prop_oneof![Just(0u32), any::<u32>()],
        sizes in proptest::collection::vec(1..40usize, 1..10),
        session in any::<bool>(),
    ) {
        let mode = if session { PoolMode::Session } else { PoolMode::Transaction };
        let whole = run(mode, &picks, fails, &[usize::MAX >> 1]);
        let cut = run(mode, &picks, fails, &sizes);
        prop_assert_eq!(&whole.0, &cut.0);
        // Behind a stray message a server's chunk decides what is still looked at.
        if whole.2.is_empty() {
            prop_assert_eq!(&whole.1, &cut.1);
            prop_assert_eq!(&whole.2, &cut.2);
        }
    }
}
