//! Errors for wrong arguments use the names of the Rust program.

use std::time::Duration;

use dsc::{
    shard_indices, Average, BucketPlanner, BucketReducer, BufferSync, ClipOptions, Comm, Dtype, Mesh, MoeDrop,
    MoeOptions, NonFiniteCheck, Norm, Op, PipeCosts, PipeFormat, PipeLimits, PipePicture, PipePlanner, PipeSchedule,
    PremulSum, Rebuild, ReducerOptions, SequenceOrder, ShardLayout, ShardRules, Sharded, ShardedOptions, Store, Tensor,
};

use crate::{join, ranks};

/// Compares the message of an error. An expected text that ends with "..." is the beginning of the message. The message
/// must contain no names of the C API.
fn refused<T>(result: dsc::Result<T>, expected: &str) {
    let message = result.err().expect("a wrong argument is refused").message;
    match expected.strip_suffix("...") {
        Some(beginning) => assert!(message.starts_with(beginning), "{}\ninstead of {}", message, expected),
        None => assert_eq!(message, expected),
    }
    for c in ["dsc_", "NULL", "->", "_ms ", "n_"] {
        assert!(!message.contains(c), "{} has {}", message, c);
    }
}

#[test]
fn of_operations_and_groups() {
    ranks(2, |world| {
        let mut x = [1.0f32; 4];
        let a_living_one =
            "expected a named Op, or an operation from PremulSum::new() or UserOp::new() that was not destroyed";
        refused(world.all_reduce(&mut x, Op::Unknown(99)), &format!("all_reduce: op is Unknown(99), {}", a_living_one));
        let gone = PremulSum::new(2.0).unwrap().op();
        refused(world.all_reduce(&mut x, gone), &format!("all_reduce: op is {:?}, {}", gone, a_living_one));
        refused(world.reduce(&mut x, Op::Sum, 2), "reduce: root is 2, expected 0 to 1");
        refused(world.send(&x, 7), "send: peer is 7, expected 0 to 1");
        let (unknown, dtype) = (Dtype::Unknown(88), "broadcast_shape: dtype is Unknown(88), expected I8 to Bool");
        if world.rank() == 0 {
            refused(world.broadcast_shape(unknown, &[1], 0), dtype);
        }
        refused(world.create_group(&[0, 1, 0]), "create_group: ranks has 3 entries, expected 1 to 2");
        refused(world.create_group(&[4]), "create_group: ranks[0] is 4, expected 0 to 1");
        refused(world.set_timeout(Duration::ZERO), "set_timeout: timeout is 0 ms, expected 1 or more");
        let check = "set_nonfinite_check: check is Unknown(5), expected Off, Count or Fail";
        refused(world.set_nonfinite_check(NonFiniteCheck::Unknown(5)), check);
        refused(PremulSum::new(f64::NAN), "PremulSum::new: scale is nan, expected a finite number");
        let described = &mut [Tensor::described(Dtype::F32, 3)];
        let memory = "all_reduce_coalesced: parameter 0: the tensor has no memory, expected Tensor::new";
        refused(world.all_reduce_coalesced(described, Op::Sum, 0), memory);
        world.barrier().unwrap(); // the refused calls had no effect on the other rank
        world.finalize().unwrap();
    });
}

#[test]
fn of_start_up_and_stores() {
    let options = dsc::InitOptions::new().rank_per_thread(true).rank(0);
    refused(options.clone().world_size(0).init(), "init: world_size is 0, expected 1 or more, or not set");
    let no_time = options.clone().world_size(1).init_timeout(Duration::ZERO).init();
    refused(no_time, "init: init_timeout is 0 ms, expected 1 or more");
    let backend = options.world_size(1).backend(dsc::Backend::Unknown(77)).init();
    refused(backend, "init: backend is Unknown(77), expected Auto, Host, Device or InterHost");
    refused(Store::open("ftp://x"), "Store::open: the store's URI is 'ftp://x', expected ...");
}

#[test]
fn of_reducers() {
    let world = join(dsc::InitOptions::new().job_id("words-reducers"), 0, 1);
    let make = |options: ReducerOptions| BucketReducer::new(&world, &mut [Tensor::new(&mut [0.0f32; 4])], &options);
    let options = ReducerOptions::new;
    let new = |text: &str| format!("BucketReducer::new: {}", text);
    let average = "average is Unknown(9), expected Pre, Post, None or Pytorch";
    refused(make(options().average(Average::Unknown(9))), &new(average));
    let rebuild = "rebuild is Unknown(9), expected Never, Once or Repeated";
    refused(make(options().rebuild(Rebuild::Unknown(9))), &new(rebuild));
    let grad_dtype = "grad_dtype is Unknown(44), expected I8 to Bool, or not set";
    refused(make(options().grad_dtype(Dtype::Unknown(44))), &new(grad_dtype));
    refused(BucketReducer::new(&world, &mut [], &options()), &new("params has 0 entries, expected 1 or more"));

    let mut reducer = make(options()).unwrap();
    let iteration = reducer.begin().unwrap();
    iteration.accumulate(0, &[1.0f32; 4]).unwrap();
    let unused = "Iteration::mark_unused: parameter 0 has an accumulated gradient, so it is not unused; \
                  call Iteration::mark_accumulated()";
    refused(iteration.mark_unused(0), unused);
    iteration.mark_accumulated(0).unwrap();
    iteration.finish().unwrap();
    refused(reducer.use_hook(Some("nope")), "BucketReducer::use_hook: unknown hook nope...");
    let mut buffer = [0.0f32; 2];
    reducer.set_buffers(&mut [Tensor::new(&mut buffer)]).unwrap();
    let how = reducer.sync_buffers(&mut [Tensor::new(&mut buffer)], BufferSync::Unknown(7));
    refused(how, "BucketReducer::sync_buffers: how is Unknown(7), expected Broadcast or Mean");
    let mut gradient = [1.0f32; 4];
    let iteration = reducer.begin().unwrap();
    iteration.mark_ready(0, &mut gradient).unwrap();
    let norm = iteration.finish_and_clip(&ClipOptions::new().norm(Norm::Unknown(8)));
    refused(norm, "Iteration::finish_and_clip: norm is Unknown(8), expected Two or Max");
}

#[test]
fn of_shards() {
    let world = join(dsc::InitOptions::new().job_id("words-shards"), 0, 1);
    let make = |options: ShardedOptions| Sharded::new(&world, &mut [Tensor::new(&mut [0.0f32; 4])], &options);
    refused(make(ShardedOptions::new().stage(9)), "Sharded::new: stage is 9, expected 1, 2 or 3");
    let average = "Sharded::new: average is Pytorch, expected Pre, Post or None";
    refused(make(ShardedOptions::new().average(Average::Pytorch)), average);
    let rules = ShardRules::new;
    refused(make(ShardedOptions::new().rules(rules().units(&[3]))), "Sharded::new: units[0] is 3, expected 0");
    let layout = rules().layout(ShardLayout::Unknown(44)).plan(&[4], &[Dtype::F32], 1);
    refused(layout, "ShardRules::plan: layout is Unknown(44), expected ...");
    refused(shard_indices(10, 2, 5, None, false), "shard_indices: shard is 5, expected 0 to 1");
}

#[test]
fn of_plans_and_schedules() {
    let limits = BucketPlanner::new(&[4], &[Dtype::F32]).limits(&[]).plan();
    refused(limits, "BucketPlanner::plan: limits has 0 entries, expected 1 or more");
    let counts = BucketPlanner::new(&[], &[]).plan();
    refused(counts, "BucketPlanner::plan: counts has 0 entries, expected 1 or more");
    refused(Mesh::new(&[]), "Mesh::new: axes has 0 entries, expected 1 to 32");
    refused(Mesh::new(&[("tp", 0)]), "Mesh::new: the axis \"tp\" has size 0, expected 1 or more");
    refused(SequenceOrder::Zigzag.ranges(8, 2, 4), "SequenceOrder::ranges: rank is 4, expected 0 to 1");
    let mesh = Mesh::new(&[("tp", 2)]).unwrap();
    let filter = "Mesh::filter: the coordinate of \"tp\" is 2, expected 0 to 1, or None for any";
    refused(mesh.filter(&[Some(2)]), filter);
    refused(PipeSchedule::new("1f1b", 3, 5, 4), "pipe_schedule: stage is 5, expected 0 to 2");
    let find = PipePlanner::new("1f1b", 3, 4).find(&PipeCosts::new(), &PipeLimits::new());
    refused(find, "PipePlanner::find: name is \"1f1b\", expected \"auto\"");

    let custom = "schedule \"custom\" needs a list of operations for each stage; use PipePlanner::custom() or \
                  PipePlan::read()";
    refused(PipePlanner::new("custom", 3, 4).plan(), &format!("pipe_schedule: {}", custom));

    let plan = PipePlanner::new("1f1b", 3, 4).plan().unwrap();
    let costs = plan.simulate(&PipeCosts::new().forward(&[1.0, 2.0]));
    refused(
        costs,
        "PipePlan::simulate: the number of values per cost is 2, expected 1 or 3: one for each part of the model",
    );
    let picture = plan.draw(PipePicture::Unknown(7), &PipeCosts::new());
    refused(picture, "PipePlan::draw: picture is Unknown(7), expected Text to Perfetto");
    let format = plan.write(PipeFormat::Unknown(7));
    refused(format, "PipePlan::write: format is Unknown(7), expected PyTorch to Json");
}

#[test]
fn of_experts() {
    let world: Comm = join(dsc::InitOptions::new().job_id("words-experts"), 0, 1);
    let make = |options: MoeOptions| world.moe_plan(&[0, 1], None, &options);
    let options = || MoeOptions::new(2, 1);
    refused(
        make(options().capacity(4, MoeDrop::Unknown(9))),
        "moe_plan: drop is Unknown(9), expected Latest or Lightest",
    );
    let weights = "moe_plan: weights is None and drop is Lightest, expected 2 router weights";
    refused(make(options().capacity(4, MoeDrop::Lightest)), weights);
    refused(make(options().padded(true)), "moe_plan: padded is true and capacity is not set, expected ...");
    let experts = world.moe_plan(&[0, 5], None, &options());
    refused(experts, "moe_plan: experts[1][0] is 5, expected 0 to 1, or -1 for no expert");
    refused(world.broadcast(&mut 1.0f32, 5), "broadcast: root is 5, expected 0, the only one");
}
