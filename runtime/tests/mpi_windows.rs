//! Reads by MPI pass the suite of all transports. To be started by `mpirun -n 2`, or alone: the process reads
//! itself, as MPI lets a process do.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use everfold_protocol::{
    Incarnation, ProcessId,
    message::{ByteRange, Peer},
};
use everfold_runtime::{
    memory::{
        buffer::Buffer,
        region::Region,
        window::{Content, Windows},
    },
    transport::{OneSidedRead, ReadError, conformance::check_window, mpi::MpiWindow, second::SecondWay},
};
use mpi::{environment::Threading, traits::*};

fn main() {
    let (universe, _) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    let world = universe.world();
    let window = Arc::new(MpiWindow::create(&world, 128 << 20).unwrap());
    let region = Region::new().unwrap();
    region.expose(&*window).unwrap();
    let windows = Arc::new(Windows::new(Some(region)));
    let me = Peer {
        process: ProcessId::first(world.rank() as u32),
        host: 1,
        pid: std::process::id(),
        region: windows.region().map(|region| region.handle()),
        bell: None,
        board: None,
        address: String::new(),
        domain: None,
        agent: None,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        conforms(&*window, &me, &windows).await;
        leads_only_to_regions_of_first_processes(&window, &me, &windows).await;
    });
    world.barrier();
    println!("rank {}: reads by MPI conform", world.rank());
}

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect()
}

fn array(windows: &Windows) -> Content {
    let content = content();
    let mut block = windows.region().unwrap().allocate(content.len()).unwrap();
    block.bytes_mut().copy_from_slice(&content);
    Content::Buffer(Buffer::new(Box::new(block)))
}

async fn conforms(reader: &dyn OneSidedRead, target: &Peer, windows: &Arc<Windows>) {
    check_window(reader, target, windows, array(windows), &content()).await;
}

async fn leads_only_to_regions_of_first_processes(reader: &MpiWindow, target: &Peer, windows: &Windows) {
    let window = windows.publish(array(windows)).unwrap();
    assert!(reader.leads_to(target, &window));
    let again = ProcessId { incarnation: Incarnation(1), ..target.process };
    assert!(!reader.leads_to(&Peer { process: again, ..target.clone() }, &window));
    assert!(!reader.leads_to(&Peer { process: ProcessId::first(99), ..target.clone() }, &window));
    assert!(!reader.leads_to(&Peer { region: None, ..target.clone() }, &window));
    let before = windows.region().unwrap().allocate(128 << 20).unwrap();
    assert!(!reader.leads_to(target, &windows.publish(array(windows)).unwrap()), "that is not shown");
    drop(before);
    let private = windows.publish(Content::Buffer(Buffer::new(Box::new(content())))).unwrap();
    assert!(!reader.leads_to(target, &private));
    let read = reader.read(target, &private, ByteRange { start: 0, len: 1 }).await;
    assert!(matches!(read, Err(ReadError::Unreachable(_))), "{read:?}");
}
