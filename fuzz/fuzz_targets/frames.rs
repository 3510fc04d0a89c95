//! Framing of both dialogues: never a panic, and the same events however the bytes are cut. States of moved clients:
//! never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshoal_fuzz::core::{Core, CoreEvent};

/// Everything that is given up when `data` comes in pieces of `size`.
fn talk(data: &[u8], size: usize, server: bool) -> Vec<CoreEvent> {
    let mut core = Core::new();
    let id = if server {
        core.dialing()
    } else {
        core.accepted(1)
    };
    core.connected(id);
    let mut events = core.events();
    for chunk in data.chunks(size.max(1)) {
        core.received(id, chunk);
        let mut turns = 0;
        while core.pending() {
            events.append(&mut core.events());
            turns += 1;
            let done = match turns % 3 {
                0 => core.proceed_startup(id),
                _ => core.proceed(id, 1_000),
            };
            if done.is_err() {
                events.append(&mut core.events());
                break;
            }
        }
    }
    core.ended(id, "");
    events.append(&mut core.events());
    events
}

fuzz_target!(|data: &[u8]| {
    let Some((&size, data)) = data.split_first() else {
        return;
    };
    let whole = talk(data, data.len(), true);
    let cut = talk(data, usize::from(size), true);
    assert_eq!(whole, cut);
    talk(data, usize::from(size), false);
    let mut core = Core::new();
    for state in [data, &[b"PGSM\x02", data].concat()] {
        if let Some(id) = core.immigrate(1, state) {
            core.ended(id, "");
        }
    }
});
