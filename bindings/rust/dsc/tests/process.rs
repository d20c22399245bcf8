//! State of the whole process: its world and the log. Also tests which types may be used on other threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use dsc::log::{self, Level};
use dsc::{ErrorCode, InitOptions};

/// Only one of these tests may run at a time, because the process has only one world and one log.
static TURN: Mutex<()> = Mutex::new(());

fn alone() -> InitOptions {
    InitOptions::new().rank(0).world_size(1)
}

#[test]
fn a_second_init_shares_the_world() {
    let _turn = TURN.lock();
    assert!(!dsc::is_initialized().unwrap());
    assert_eq!(dsc::world().unwrap_err().code, ErrorCode::State);
    let first = alone().init().unwrap();
    let second = alone().init().unwrap();
    drop(first); // the other objects keep the world alive
    let third = dsc::world().unwrap();
    second.barrier().unwrap();
    let error = alone().timeout(Duration::from_secs(7)).init().unwrap_err();
    assert_eq!(error.code, ErrorCode::State);
    assert!(error.message.contains("with another timeout;"), "{}", error);
    second.finalize().unwrap();
    assert_eq!(third.barrier().unwrap_err().code, ErrorCode::BadHandle);
    assert!(!dsc::is_initialized().unwrap());

    let again = alone().init().unwrap(); // a new world
    again.barrier().unwrap();
    drop(again); // dropping the last object ends the world
    assert!(!dsc::is_initialized().unwrap());
    assert_eq!(third.rank(), 0);
}

#[test]
fn wrong_options_are_named() {
    let _turn = TURN.lock();
    let error = InitOptions::new().rank(3).world_size(2).init().unwrap_err();
    assert!(matches!(error.code, ErrorCode::InvalidArg | ErrorCode::Config), "{}", error);
    let error = alone().init_method("tcp://a\0b").init().unwrap_err();
    assert!(error.message.starts_with("init_method is"), "{}", error);
    let error = alone().nccl_library("a\0b").init().unwrap_err();
    assert!(error.message.starts_with("nccl.library is"), "{}", error);
    let error = alone().setting("nccl.nonsense", 3).init().unwrap_err();
    assert!(error.message.contains("unknown setting \"nccl.nonsense\""), "{}", error);
    let error = alone().require_existing(true).init().unwrap_err();
    assert_eq!(error.code, ErrorCode::State);
    let error = InitOptions::new().rank(usize::MAX).world_size(1).init().unwrap_err();
    assert!(error.message.contains("expected at most 2147483647"), "{}", error);
    assert_eq!(dsc::feature("nonsense").unwrap_err().code, ErrorCode::InvalidArg);
}

#[test]
fn the_callback_may_panic() {
    let _turn = TURN.lock();
    let (calls, texts) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (count, sink) = (calls.clone(), texts.clone());
    log::set_callback(Level::Info, move |level, text| {
        assert_eq!(level, Level::Info);
        sink.lock().unwrap().push(text.to_owned());
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            panic!("the first record is too much");
        }
    })
    .unwrap();
    for _ in 0..2 {
        alone().init().unwrap().finalize().unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while calls.load(Ordering::SeqCst) < 4 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    log::remove_callback().unwrap();
    let texts = texts.lock().unwrap().clone();
    let starts = [texts[0].as_str(), texts[2].as_str()];
    assert!(starts.iter().all(|text| text.contains("rank 0 of 1 is ready")), "{:?}", texts);
    assert_eq!(Arc::strong_count(&calls), 1); // the callback was dropped
    let error = log::set_callback(Level::Unknown(77), |_, _| ()).unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArg);
}

#[test]
fn records_can_be_polled() {
    let _turn = TURN.lock();
    assert_eq!(log::read(Level::Info).unwrap(), None); // the first call starts the recording
    alone().init().unwrap().finalize().unwrap();
    let record = log::read(Level::Info).unwrap().unwrap();
    assert_eq!(record.level, Level::Info);
    assert!(record.text.contains("rank 0 of 1 is ready"), "{}", record.text);
    log::read(Level::Off).unwrap();
}

#[test]
fn numbers_of_a_newer_library_are_kept() {
    assert_eq!(dsc::Op::Unknown(1000).number(), 1000);
    assert_eq!(dsc::Dtype::from_number(10), dsc::Dtype::Bf16);
    assert_eq!(dsc::Dtype::from_number(99), dsc::Dtype::Unknown(99));
}

/// The documentation of `Comm` has tests which show that `Comm` and `Scope` are not Sync.
#[test]
fn types_may_go_where_the_headers_allow() {
    fn send<T: Send>() {}
    fn send_and_sync<T: Send + Sync>() {}
    send::<dsc::Comm>();
    send_and_sync::<dsc::Watch>();
    send_and_sync::<dsc::Work<Vec<f32>>>();
    send_and_sync::<dsc::ScopedWork<&mut [f32]>>();
    send_and_sync::<dsc::SharedBuffer<f32>>();
    send_and_sync::<dsc::DeviceBuffer<f32>>();
    send_and_sync::<dsc::DeviceSlice<'_, f32>>();
    send_and_sync::<dsc::Stream<'_>>();
    send_and_sync::<dsc::BucketReducer>();
    send_and_sync::<dsc::Iteration>();
    send_and_sync::<dsc::View<f32>>();
    send_and_sync::<dsc::PipeSchedule>();
    send_and_sync::<dsc::PipePlan>();
    send_and_sync::<dsc::Error>();
}

#[test]
fn traces_of_the_flight_recorder() {
    let _turn = TURN.lock();
    let world = alone().init().unwrap();
    world.barrier().unwrap();
    let text = world.trace().unwrap();
    assert!(text.starts_with('{') && text.ends_with('}'), "{}", text);
    assert!(text.contains("\"profiling_name\":\"dsc:barrier\""), "{}", text);
    let folder = std::env::temp_dir().join(format!("dsc-trace-{}", std::process::id()));
    let path = folder.join("trace.json");
    let watch = world.watch();
    let dumping = watch.clone();
    let to = path.clone();
    thread::spawn(move || dumping.dump_trace(Some(&to))).join().unwrap().unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("dsc:barrier"));
    std::fs::remove_dir_all(&folder).unwrap();
    let error = world.dump_trace(None).unwrap_err();
    assert!(error.code == ErrorCode::InvalidArg && error.message.contains("DSC_TRACE_DIR"), "{}", error);
    assert_eq!(dsc::request_trace_dump().unwrap_err().code, ErrorCode::State);
    drop(world);
    assert_eq!(watch.trace().unwrap_err().code, ErrorCode::BadHandle);
}
