//! Reads by MPI pass the suite of all transports, where a process reads itself. Started by `mpirun -n 2`,
//! processes read each other, too.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use everfold_protocol::{
    Generation, Incarnation, ProcessId, RegionOffset, WindowId,
    message::{ByteRange, Peer, Place, RegionRef, WindowRef},
};
use everfold_runtime::{
    memory::{
        buffer::Buffer,
        region::Region,
        window::{Content, Windows},
    },
    transport::{OneSidedRead, ReadError, conformance::check_window, mpi::MpiWindow, second::SecondWay},
};
use mpi::{environment::Threading, topology::SimpleCommunicator, traits::*};
use tokio::runtime::Runtime;

fn main() {
    let (universe, _) = mpi::initialize_with_threading(Threading::Multiple).unwrap();
    let world = universe.world();
    let window = Arc::new(MpiWindow::create(&world, 128 << 20).unwrap());
    let region = Region::new().unwrap();
    window.show(&region).unwrap();
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
    read_the_neighbour(&world, &*window, &me, &windows, &runtime);
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

/// Each process reads in turn what the next one shows, which waits in a barrier: within MPI.
fn read_the_neighbour(
    world: &SimpleCommunicator,
    reader: &dyn OneSidedRead,
    me: &Peer,
    windows: &Windows,
    runtime: &Runtime,
) {
    let shown = windows.publish(array(windows)).unwrap();
    let Place::Region(offset) = shown.place else { panic!("it lies in the region") };
    let region = me.region.unwrap();
    let mine = [region.address, offset.0, shown.window.0, shown.generation.0];
    let size = world.size() as usize;
    let mut all = vec![0u64; mine.len() * size];
    world.all_gather_into(&mine[..], &mut all[..]);
    for rank in 0..size {
        let next = (rank + 1) % size;
        let &[address, offset, number, generation] = &all[next * mine.len()..][..mine.len()] else { return };
        let (window, generation) = (WindowId(number), Generation(generation));
        let neighbour = Peer {
            process: ProcessId::first(next as u32),
            region: Some(RegionRef { address, ..region }),
            ..me.clone()
        };
        let window =
            WindowRef { window, generation, place: Place::Region(RegionOffset(offset)), ..shown.clone() };
        if rank == world.rank() as usize {
            let range = ByteRange { start: 999, len: 2_000_001 };
            let read = runtime.block_on(reader.read(&neighbour, &window, range)).unwrap();
            assert!(read[..] == content()[999..2_001_000]);
            let released = WindowRef { generation: Generation(generation.0 + 1), ..window };
            let read = runtime.block_on(reader.read(&neighbour, &released, range));
            assert!(matches!(read, Err(ReadError::Released)), "{read:?}");
        }
        world.barrier();
    }
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
