//! Reducers and pipelines on GPUs.

use std::time::Duration;

use dsc::{request, BucketReducer, DeviceBuffer, ErrorCode, Op, PipeCall, PipeCallbacks, PipeOp, PipeResult};
use dsc::{
    PipeSchedule, PipeShapes, ReducerOptions, Sharded, ShardedOptions, Tensor, TiedKey, TiedLayers, TiedOptions,
};

use crate::{cuda, known, ranks, read, write, Rank};

const LONG: Duration = Duration::from_secs(20);

fn reducer(rank: &Rank<'_>, params: &mut [DeviceBuffer<f32>]) -> BucketReducer {
    let mut tensors: Vec<Tensor<'_>> = params.iter_mut().map(Tensor::new).collect();
    BucketReducer::new(&rank.world, &mut tensors, &ReducerOptions::new()).unwrap()
}

#[test]
fn a_reducer_averages_where_gradients_lie() {
    ranks(2, |rank| {
        let (own, me) = (rank.stream(), rank.world.rank() as f32);
        let stream = known(&own);
        let mut params = [rank.buffer(&own, &[me; 5]), rank.buffer(&own, &[me + 1.0; 7])];
        let mut reducer = reducer(rank, &mut params);
        assert_eq!(read(&own, params[1].as_ptr(), 7), [1.0; 7]); // copied from rank 0

        let mut grads = [rank.buffer(&own, &[me; 5]), rank.buffer(&own, &[2.0 * me; 7])];
        let ones = rank.buffer(&own, &[1.0f32; 5]);
        for (step, before) in [0.5f32, 1.5].into_iter().enumerate() {
            let iteration = reducer.begin_on(stream).unwrap();
            let [first, second] = &mut grads;
            iteration.accumulate_on(0, &ones, stream).unwrap();
            iteration.mark_ready_on(0, first, stream).unwrap();
            iteration.mark_ready(1, second).unwrap(); // on the default stream
            if step == 0 {
                iteration.finish().unwrap();
            } else {
                // SAFETY: the gradients stay valid until synchronize() has waited.
                unsafe { iteration.finish_on(stream) }.unwrap();
                assert!(reducer.synchronize(LONG).unwrap());
            }
            assert_eq!(read(&own, grads[0].as_ptr(), 5), [before + 1.0; 5]);
            assert_eq!(read(&own, grads[1].as_ptr(), 7), [1.0; 7]);
        }

        let iteration = reducer.begin().unwrap();
        for (index, len) in [(0, 5), (1, 7)] {
            write(&own, iteration.device_view(index).unwrap(), &vec![4.0 * me; len]);
            iteration.mark_accumulated_on(index, stream).unwrap();
        }
        iteration.finish().unwrap();
        assert_eq!(read(&own, reducer.device_view::<f32>(1).unwrap(), 7), [2.0; 7]);
    });
}

#[test]
fn sharded_parameters_are_of_the_host() {
    ranks(2, |rank| {
        let own = rank.stream();
        let mut params = [rank.buffer(&own, &[1.0f32; 5])];
        let mut tensors: Vec<Tensor<'_>> = params.iter_mut().map(Tensor::new).collect();
        let error = Sharded::new(&rank.world, &mut tensors, &ShardedOptions::new()).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unsupported);
        assert!(error.to_string().contains("expected host memory"), "{error}");
    });
}

#[test]
fn a_hook_works_on_the_stream() {
    ranks(2, |rank| {
        let (own, me) = (rank.stream(), rank.world.rank() as f32);
        let mut params = [rank.buffer(&own, &[0.0f32; 5])];
        let mut reducer = reducer(rank, &mut params);
        let hook = |bucket: &mut dsc::Bucket<'_>| {
            assert!(bucket.buffer_mut::<f32>().unwrap_err().message.contains("on a GPU"));
            let (comm, stream) = (bucket.comm(), bucket.stream().unwrap());
            let mut gradients = bucket.device_buffer::<f32>()?;
            comm.scope(|scope| scope.start_on(request::all_reduce(&mut gradients, Op::Avg), stream).map(drop))?;
            Ok(())
        };
        reducer.set_hook("mean", hook).unwrap();
        let mut grad = rank.buffer(&own, &[me; 5]);
        let iteration = reducer.begin().unwrap();
        iteration.mark_ready_on(0, &mut grad, known(&own)).unwrap();
        iteration.finish().unwrap();
        assert_eq!(read(&own, grad.as_ptr(), 5), [0.5; 5]);
        assert!(reducer.read_grad::<f32>(0).unwrap_err().message.contains("is on device"));
        let iteration = reducer.begin().unwrap();
        iteration.mark_ready(0, &mut grad).unwrap();
        let norm = iteration.finish_and_clip(&dsc::ClipOptions::new().scale(0.5)).unwrap();
        assert_eq!(norm, 0.5 * 1.25f64.sqrt());
        assert_eq!(read(&own, grad.as_ptr(), 5), [0.25; 5]);
    });
}

#[test]
fn a_reducer_refuses_what_lies_elsewhere() {
    ranks(2, |rank| {
        let own = rank.stream();
        let mut params = [rank.buffer(&own, &[1.0f32; 3])];
        let mut on_device = reducer(rank, &mut params);
        let error = on_device.view::<f32>(0).unwrap_err();
        assert!(error.message.contains("is on device") && error.message.contains("device_view"), "{}", error);
        let mut host = [0.0f32; 3];
        let iteration = on_device.begin().unwrap();
        assert!(iteration.grad_view::<f32>(0).unwrap_err().message.contains("is on device"));
        let error = iteration.mark_ready(0, &mut host).unwrap_err();
        assert!(error.message.contains("is on the host; expected a gradient on device"), "{}", error);
        let error = iteration.accumulate(0, &params[0]).unwrap_err();
        assert!(error.message.contains("expected accumulate_on"), "{}", error);
        drop(iteration); // ends the reducer
        let error = on_device.begin().unwrap_err();
        assert_eq!(error.code, ErrorCode::State);
    });
}

#[test]
fn tied_layers_add_up_on_a_stream() {
    ranks(2, |rank| {
        let (own, me) = (rank.stream(), rank.world.rank() as f32);
        let (mut weight, mut grad) = (rank.buffer(&own, &[me; 4]), rank.buffer(&own, &[me + 1.0; 4]));
        let keys = vec![TiedKey::new("embed", &[0, 1]).weights(vec![Tensor::new(&mut weight)])];
        let mut tied = TiedLayers::new(&rank.world, keys, &TiedOptions::new()).unwrap();
        assert_eq!(read(&own, weight.as_ptr(), 4), [0.0; 4]); // copied from the first stage
        let error = tied.reduce(&mut [Tensor::new(&mut grad)]).unwrap_err();
        assert!(error.message.contains("expected reduce_on"), "{}", error);
        // SAFETY: read() waits for the stream, and the gradients stay valid until then.
        unsafe { tied.reduce_on(&mut [Tensor::new(&mut grad)], known(&own)) }.unwrap();
        assert_eq!(read(&own, grad.as_ptr(), 4), [3.0; 4]);
    });
}

/// The first stage doubles its inputs, the second one sums them. All gradients have the same value.
struct Stage<'s, 'c> {
    stream: &'s cuda::Stream<'c>,
    first: bool,
    grads: Vec<f32>,
}

fn forward(stage: &mut Stage<'_, '_>, call: &mut PipeCall<'_>) -> PipeResult {
    let micro_batch = call.instruction.micro_batch.unwrap_or(0) as f32;
    if stage.first {
        write(stage.stream, call.outputs.place(0)?.cast(), &[2.0 * micro_batch; 4]);
    } else if let Some(loss) = &mut call.loss {
        **loss = read::<f32>(stage.stream, call.inputs.place(0)?.cast(), 4).iter().sum::<f32>().into();
    }
    let tensors = if stage.first { &call.outputs } else { &call.inputs };
    assert!(tensors.get::<f32>(0).unwrap_err().message.contains("is on device"));
    Ok(())
}

fn backward(stage: &mut Stage<'_, '_>, call: &mut PipeCall<'_>) -> PipeResult {
    if stage.first {
        stage.grads.extend(read::<f32>(stage.stream, call.output_grads.place(0)?.cast(), 4));
    } else {
        let micro_batch = call.instruction.micro_batch.unwrap_or(0) as f32;
        write(stage.stream, call.input_grads.place(0)?.cast(), &[micro_batch + 2.0; 4]);
    }
    Ok(())
}

#[test]
fn a_pipeline_keeps_activations_on_the_device() {
    let found = ranks(2, |rank| {
        let own = rank.stream();
        let first = rank.world.rank() == 0;
        let mut schedule = PipeSchedule::new("1f1b", 2, rank.world.rank(), 3).unwrap();
        let end = || vec![Tensor::described(dsc::Dtype::F32, 4)];
        let mut shapes = PipeShapes::default();
        *(if first { &mut shapes.outputs } else { &mut shapes.inputs }) = end();
        let nothing = |_: &mut Stage<'_, '_>, _: &mut PipeCall<'_>| Ok(());
        let callbacks = [PipeOp::LoadMicroBatch, PipeOp::ReduceTiedGrads, PipeOp::ReduceGrads, PipeOp::OptimizerStep]
            .into_iter()
            .fold(PipeCallbacks::new(), |table, op| table.on(op, nothing))
            .on(PipeOp::Forward, forward)
            .on(PipeOp::Backward, backward);
        let mut stage = Stage { stream: &own, first, grads: Vec::new() };
        let loss = rank.world.pipe_run_on(&mut schedule, &mut stage, &callbacks, &shapes, known(&own)).unwrap();
        own.synchronize();
        (loss, stage.grads)
    });
    if let [first, second] = &found[..] {
        assert_eq!((first.0, second.0), (8.0, 8.0)); // the mean of the losses 0, 8 and 16
        assert_eq!(first.1, [[2.0; 4], [3.0; 4], [4.0; 4]].concat());
    }
}
