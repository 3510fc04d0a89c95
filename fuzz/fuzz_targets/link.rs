//! Clients and servers that send what they like, and Python that says what it likes: never a panic, links stay pairs,
//! the pool's counts stay true.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pgshoal_fuzz::core::{ConnId, Core, CoreEvent, EngineLimits, PoolId, PoolMode, PoolSpec};
use pgshoal_fuzz::Source;

const ASKS: &[&[u8]] = &[
    b"Q\0\0\0\x0dselect 1\0",
    b"Q\0\0\0\x0abegin\0",
    b"Q\0\0\0\x13DEALLOCATE ALL\0",
    b"Q\0\0\0\x11DEALLOCATE a\0",
    b"P\0\0\0\x0ea\0select\0\0\0",
    b"P\0\0\0\x0eb\0insert\0\0\0",
    b"P\0\0\0\x0c\0begin\0\0\0",
    b"P\0\0\0\x13\0deallocate a\0\0\0",
    b"P\0\0\0\x12\0discard all\0\0\0",
    b"B\0\0\0\x0d\0a\0\0\0\0\0\0\0",
    b"B\0\0\0\x0d\0b\0\0\0\0\0\0\0",
    b"B\0\0\0\x0c\0\0\0\0\0\0\0\0",
    b"D\0\0\0\x07Sa\0",
    b"D\0\0\0\x06P\0",
    b"E\0\0\0\x09\0\0\0\0\0",
    b"C\0\0\0\x07Sa\0",
    b"C\0\0\0\x06S\0",
    b"S\0\0\0\x04",
    b"H\0\0\0\x04",
    b"d\0\0\0\x06xy",
    b"c\0\0\0\x04",
    b"f\0\0\0\x05\0",
    b"X\0\0\0\x04",
];

const ANSWERS: &[&[u8]] = &[
    b"1\0\0\0\x04",
    b"2\0\0\0\x04",
    b"3\0\0\0\x04",
    b"n\0\0\0\x04",
    b"s\0\0\0\x04",
    b"I\0\0\0\x04",
    b"t\0\0\0\x06\0\0",
    b"T\0\0\0\x06\0\0",
    b"D\0\0\0\x06\0\0",
    b"C\0\0\0\x0dSELECT 1\0",
    b"C\0\0\0\x13DEALLOCATE ALL\0",
    b"C\0\0\0\x0fDEALLOCATE\0",
    b"G\0\0\0\x07\0\0\0",
    b"H\0\0\0\x07\0\0\0",
    b"W\0\0\0\x07\0\0\0",
    b"d\0\0\0\x06xy",
    b"c\0\0\0\x04",
    b"E\0\0\0\x0cC42601\0\0",
    b"E\0\0\0\x34C0A000\0Mcached plan must not change result type\0\0",
    b"S\0\0\0\x11TimeZone\0UTC\0",
    b"Z\0\0\0\x05I",
    b"Z\0\0\0\x05T",
    b"Z\0\0\0\x05E",
    b"Z\0\0\0\x05I",
];

struct World {
    core: Core,
    pool: PoolId,
    clients: Vec<ConnId>,
    servers: Vec<ConnId>,
}

fn values(zone: bool) -> Vec<(String, String)> {
    let zone = if zone { "UTC" } else { "Europe/Rome" };
    vec![("TimeZone".into(), zone.into())]
}

impl World {
    fn new(source: &mut Source) -> Self {
        let mut core = Core::new();
        core.set_limits(EngineLimits {
            extra_parameters: vec!["search_path".into()],
            ..Default::default()
        });
        let mode = match source.byte() % 3 {
            0 => PoolMode::Transaction,
            1 => PoolMode::Session,
            _ => PoolMode::Statement,
        };
        let spec = PoolSpec {
            mode,
            max_prepared_statements: usize::from(source.byte() % 4),
            ..Default::default()
        };
        let pool = core.add_pool(spec);
        let mut world = Self {
            core,
            pool,
            clients: vec![],
            servers: vec![],
        };
        world.add_server(true);
        world.add_client(true);
        world.add_client(true);
        world
    }

    fn add_client(&mut self, zone: bool) {
        if self.clients.len() < 4 {
            let id = self.core.accepted(1);
            self.core
                .admit(id, self.pool, &values(zone), 0, -1)
                .expect("fresh");
            self.clients.push(id);
        }
    }

    fn add_server(&mut self, zone: bool) {
        if self.servers.len() < 3 {
            let id = self.core.dialing();
            self.core.connected(id);
            self.core
                .enroll(id, self.pool, &values(zone))
                .expect("fresh");
            self.servers.push(id);
        }
    }

    fn step(&mut self, source: &mut Source) {
        let (op, which) = (source.byte(), source.byte());
        let client = self
            .clients
            .get(usize::from(which) % self.clients.len().max(1))
            .copied()
            .unwrap_or(0);
        let server = self
            .servers
            .get(usize::from(which) % self.servers.len().max(1))
            .copied()
            .unwrap_or(0);
        let core = &mut self.core;
        match op % 21 {
            0..=5 => core.received(client, ASKS[usize::from(source.byte()) % ASKS.len()]),
            6..=11 => core.received(server, ANSWERS[usize::from(source.byte()) % ANSWERS.len()]),
            12 => core.received(client, source.bytes(usize::from(which % 16))),
            13 => core.received(server, source.bytes(usize::from(which % 16))),
            14 => self.add_client(which & 1 == 0),
            15 => self.add_server(which & 1 == 0),
            16 => core.ended(if which & 128 == 0 { client } else { server }, ""),
            17 => drop(core.close(
                if which & 128 == 0 { client } else { server },
                b"",
                "said so",
            )),
            18 => match which % 8 {
                0 => drop(core.hold(server)),
                1 => drop(core.unhold(server)),
                2 => drop(core.decide(server, true)),
                3 => drop(core.take(server)),
                4 => drop(core.unwait(client)),
                5 => drop(core.pause_pool(self.pool, true)),
                _ => drop(core.pause_pool(self.pool, false)),
            },
            19 => drop(core.emigrate(client)),
            _ => drop(core.park(server)),
        }
        self.settle();
    }

    /// A client that has moved is where it was.
    fn come_back(&mut self) {
        for event in self.core.events() {
            if let CoreEvent::Moved { state, .. } = event {
                let id = self.core.immigrate(1, &state).expect("our own state");
                self.core
                    .admit(id, self.pool, &values(true), 0, -1)
                    .expect("in dialogue");
                if self.core.is_alive(id) {
                    self.clients.push(id);
                }
            }
        }
    }

    /// What a driver does after each batch; then what must always hold is checked.
    fn settle(&mut self) {
        self.core.events();
        let mut touched = Vec::new();
        self.core.take_touched(&mut touched);
        for id in touched {
            let output = self.core.take_output(id);
            self.core.recycle(output);
            if self.core.is_closing(id) {
                self.core.gone(id);
            } else if self.core.is_moving(id) {
                self.core.moved(id, -1);
                self.come_back();
            }
        }
        let core = &self.core;
        self.clients.retain(|id| core.is_alive(*id));
        self.servers.retain(|id| core.is_alive(*id));
        let mut linked = 0;
        for id in &self.clients {
            let server = core.link_of(*id).expect("alive");
            if server != 0 {
                assert_eq!(core.link_of(server), Ok(*id));
            }
            linked += usize::from(matches!(
                core.facts(*id).expect("alive").mode,
                "linked" | "linking"
            ));
        }
        let counts = core.pool_counts(self.pool).expect("there");
        assert_eq!((counts.cl_linked, counts.sv_linked), (linked, linked));
        assert_eq!(
            counts.cl_waiting,
            core.waiting_clients(self.pool).expect("there").len()
        );
        assert_eq!(
            counts.sv_idle,
            core.idle_servers(self.pool).expect("there").len()
        );
        let all = counts.sv_idle + counts.sv_linked + counts.sv_held + counts.sv_dialogue;
        let frozen = |id: &&ConnId| core.facts(**id).is_ok_and(|facts| facts.mode == "frozen");
        assert_eq!(
            all + self.servers.iter().filter(frozen).count(),
            self.servers.len()
        );
    }
}

fuzz_target!(|data: &[u8]| {
    let mut source = Source(data);
    let mut world = World::new(&mut source);
    while !source.is_empty() {
        world.step(&mut source);
    }
});
