//! Rewrites messages of the C library with the names of this crate: functions, arguments and enumerators.

use crate::log::Level;
use crate::numbers::{
    Average, Backend, BufferSync, Dtype, ErrorCode, Mapping, MoeDrop, MoePayload, NonFiniteCheck, Norm, Op, PipeFormat,
    PipePicture, ShardLayout,
};
use crate::numbers::{PipePlacement, Rebuild};

/// Converts a number of the C interface to the text of the Rust enumerator.
type Variant = fn(i32) -> String;

/// Options that are enums in Rust, and numbers in the C interface.
const CHOICES: [(&str, Variant); 17] = [
    ("average", |number| format!("{:?}", Average::from_number(number))),
    ("backend", |number| format!("{:?}", Backend::from_number(number))),
    ("check", |number| format!("{:?}", NonFiniteCheck::from_number(number))),
    ("drop", |number| format!("{:?}", MoeDrop::from_number(number))),
    ("dtype", |number| format!("{:?}", Dtype::from_number(number))),
    ("format", |number| format!("{:?}", PipeFormat::from_number(number))),
    ("grad_dtype", |number| format!("{:?}", Dtype::from_number(number))),
    ("how", |number| format!("{:?}", BufferSync::from_number(number))),
    ("layout", |number| format!("{:?}", ShardLayout::from_number(number))),
    ("level", |number| format!("{:?}", Level::from_number(number))),
    ("mapping", |number| format!("{:?}", Mapping::from_number(number))),
    ("norm", |number| format!("{:?}", Norm::from_number(number))),
    ("op", |number| format!("{:?}", Op::from_number(number))),
    ("payload", |number| format!("{:?}", MoePayload::from_number(number))),
    ("picture", |number| format!("{:?}", PipePicture::from_number(number))),
    ("placement", |number| format!("{:?}", PipePlacement::from_number(number))),
    ("rebuild", |number| format!("{:?}", Rebuild::from_number(number))),
];

/// Functions that have another name in Rust.
const CALLS: [(&str, &str); 28] = [
    ("bucket_plan", "BucketPlanner::plan"),
    ("bucket_reducer_clip", "Iteration::finish_and_clip"),
    ("heads_to_sequence", "SequenceHeads::backward"),
    ("init_distributed", "init"),
    ("log_set_callback", "log::set_callback"),
    ("mesh_create_experts", "Mesh::experts"),
    ("op_create_premul", "PremulSum::new"),
    ("op_create_user", "UserOp::new"),
    ("pipe_draw", "PipePlan::draw"),
    ("pipe_partition", "Partitioner::plan"),
    ("pipe_schedule_at_stage", "PipePlan::stage"),
    ("pipe_schedule_create_custom", "PipePlanner::custom"),
    ("pipe_schedule_export", "PipePlan::write"),
    ("pipe_schedule_import", "PipePlan::read"),
    ("pipe_search", "PipePlanner::find"),
    ("pipe_simulate", "PipePlan::simulate"),
    ("ring_begin", "Ring::pass"),
    ("rng_layer_seed", "seed_layer"),
    ("rng_region_seed", "seed_region"),
    ("sampler_indices", "shard_indices"),
    ("sequence_causal_range", "SequenceOrder::causal_work"),
    ("sequence_ranges", "SequenceOrder::ranges"),
    ("sequence_to_heads", "SequenceHeads::forward"),
    ("shard_plan", "ShardRules::plan"),
    ("tensor_map_part", "split_range"),
    ("tied_plan", "tied_stages"),
    ("trace_dump", "dump_trace"),
    ("vocab_cross_entropy_forward", "vocab_cross_entropy"),
];

/// Prefixes of other functions, with the types that have these functions as methods.
const METHODS: [(&str, &str); 10] = [
    ("bucket_reducer_accumulate", "Iteration::accumulate"),
    ("bucket_reducer_finish", "Iteration::finish"),
    ("bucket_reducer_mark_", "Iteration::mark_"),
    ("bucket_reducer_", "BucketReducer::"),
    ("join_", "Join::"),
    ("mesh_", "Mesh::"),
    ("sharded_", "Sharded::"),
    ("store_", "Store::"),
    ("tensor_map_", "TensorMap::"),
    ("tied_layers_", "TiedLayers::"),
];

/// Phrases for C, with the phrases for Rust. They are replaced in this order.
const PHRASES: [(&str, &str); 29] = [
    ("dsc_bucket_reducer_mark_sparse()", "Iteration::mark_sparse()"),
    ("dsc_bucket_reducer_set_buffers()", "BucketReducer::set_buffers()"),
    ("dsc_comm_group_rank()", "Comm::group_rank()"),
    ("dsc_init_distributed()", "init()"),
    ("dsc_mem_alloc()", "Comm::shared_buffer()"),
    ("dsc_mem_register()", "Comm::register()"),
    ("dsc_pipe_run_bytes()", "PipeSchedule::run_bytes()"),
    ("dsc_ring_begin()", "Ring::pass()"),
    ("dsc_work_wait()", "wait_on()"),
    ("101 (sum) to 108 (bxor)", "a named Op"),
    ("set device in dsc_init_options_t", "set InitOptions::device()"),
    ("set options->parts", "use TensorMap::uneven()"),
    ("dsc_bucket_reducer_mark_ready() with gradient NULL", "Iteration::mark_accumulated()"),
    ("dsc_sharded_mark_ready() with gradient NULL", "Sharded::mark_accumulated()"),
    ("costs->n is", "the number of values per cost is"),
    ("data is NULL", "the tensor has no memory, expected Tensor::new"),
    ("expected NULL or \"auto\"", "expected \"auto\""),
    ("NULL", "None"),
    ("expert_ids[", "experts["),
    ("unit_starts", "units"),
    ("options->padded is 1 and options->capacity is 0", "padded is true and capacity is not set"),
    (", or -1 to detect it", ", or not set"),
    (", or -1 to compute it from options->world_size", ""),
    (", or none (-1) for the whole pipeline", ""),
    (", or -1 for no group", ", or None for no group"),
    (", or -1 for any", ", or None for any"),
    (", or 0 for that of the parameters", ", or not set"),
    ("with another timeout_ms", "with another timeout"),
    ("expected 0 to 0", "expected 0, the only one"),
];

/// Returns a message of the library with the names of this crate.
pub(crate) fn in_rust(code: ErrorCode, message: String) -> String {
    let message = call_in_rust(message);
    if !may_be_said_anew(code) {
        return message;
    }
    if let Some(found) = message.find("struct_size is ") {
        let text = "the loaded libdsc.so does not know a struct of this crate, because their versions differ";
        return format!("{} ({})", text, &message[found..]);
    }
    let message = PHRASES.iter().fold(message, |message, (c, rust)| message.replace(c, rust));
    let message = counted(without_arrows(calls_in_rust(message)));
    let message = numbered(message, "timeout_ms is ", |n| format!("timeout is {} ms", n));
    CHOICES.iter().fold(message, chosen)
}

/// Whether messages of this error may be rewritten. Others may contain text of the program.
fn may_be_said_anew(code: ErrorCode) -> bool {
    use ErrorCode::{Config, InvalidArg, NoBackend, State, Unsupported};
    matches!(code, InvalidArg | State | Unsupported | Config | NoBackend)
}

/// Rewrites the name of the function at the start of a message: "dsc_broadcast: " becomes "broadcast: ".
fn call_in_rust(message: String) -> String {
    let (name, rest) = match message.strip_prefix("dsc_").and_then(|rest| rest.split_once(": ")) {
        Some(found) if found.0.bytes().all(is_in_names) => found,
        _ => return message,
    };
    format!("{}: {}", name_in_rust(name), rest)
}

/// Returns the Rust name of a C function.
fn name_in_rust(name: &str) -> String {
    if let Some((_, rust)) = CALLS.iter().find(|(c, _)| *c == name) {
        return (*rust).to_owned();
    }
    let method = METHODS.iter().find_map(|(c, rust)| name.strip_prefix(c).map(|rest| format!("{}{}", rust, rest)));
    match method {
        Some(method) => method.strip_suffix("::create").map_or(method.clone(), |rust| format!("{}::new", rust)),
        None => {
            let name = name.strip_prefix("comm_").unwrap_or(name);
            name.strip_suffix("_create").unwrap_or(name).to_owned()
        }
    }
}

/// Rewrites calls in a message: "dsc_sharded_finish()" becomes "Sharded::finish()".
fn calls_in_rust(mut message: String) -> String {
    let mut from = 0;
    while let Some(found) = message[from..].find("dsc_") {
        let start = from + found;
        let name = start + "dsc_".len();
        let length = message[name..].bytes().position(|byte| !is_in_names(byte)).unwrap_or(message.len() - name);
        let end = name + length;
        from = end;
        if message[end..].starts_with("()") {
            let rust = name_in_rust(&message[name..end]);
            from = start + rust.len();
            message.replace_range(start..end, &rust);
        }
    }
    message
}

fn is_in_names(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Removes C's names of structs: "options->overlap" becomes "overlap".
fn without_arrows(mut message: String) -> String {
    while let Some(arrow) = message.find("->") {
        let outside = |letter: char| !letter.is_alphanumeric() && letter != '_';
        let start = message[..arrow].char_indices().rev().find(|(_, letter)| outside(*letter));
        message.replace_range(start.map_or(0, |(at, letter)| at + letter.len_utf8())..arrow + 2, "");
    }
    message
}

/// Rewrites counts: "n_ranks is 2" becomes "ranks has 2 entries". A plain "n" is the length of the list `counts`.
fn counted(message: String) -> String {
    let (c, name) = match word_before(&message, " is ") {
        Some("n") => ("n".to_owned(), "counts".to_owned()),
        Some(c) if c.starts_with("n_") => (c.to_owned(), c[2..].to_owned()),
        _ => return message,
    };
    numbered(message, &format!("{} is ", c), |n| format!("{} has {} entries", name, n))
}

/// Returns the word before the first occurrence of a text.
fn word_before<'m>(message: &'m str, text: &str) -> Option<&'m str> {
    let end = message.find(text)?;
    let start = message[..end].bytes().rposition(|byte| !is_in_names(byte)).map_or(0, |at| at + 1);
    Some(&message[start..end])
}

/// Replaces a text such as "timeout_ms is " and the number after it. The text may be the end of a longer name.
fn numbered(message: String, text: &str, said: impl Fn(i32) -> String) -> String {
    let start = match message.find(text) {
        Some(start) => start,
        None => return message,
    };
    let at = start + text.len();
    match leading_number(&message[at..]) {
        Some((number, length)) => format!("{}{}{}", &message[..start], said(number), &message[at + length..]),
        None => message,
    }
}

/// Returns the integer at the start of a text, and its length.
fn leading_number(text: &str) -> Option<(i32, usize)> {
    let length = text.bytes().position(|byte| byte != b'-' && !byte.is_ascii_digit()).unwrap_or(text.len());
    text[..length].parse().ok().map(|number| (number, length))
}

/// Rewrites "average is 9, expected 1 (pre) or 2 (post)" as "average is Unknown(9), expected Pre or Post".
fn chosen(message: String, (name, variant): &(&str, Variant)) -> String {
    let is_choice = |before: &str| !before.bytes().next_back().map_or(false, is_in_names);
    let found = message.find(&format!("{} is ", name)).filter(|at| is_choice(&message[..*at]));
    let (start, rest) = match found {
        Some(at) => message.split_at(at + name.len() + " is ".len()),
        None => return message,
    };
    match leading_number(rest) {
        Some((_, length)) if rest[length..].starts_with(" (") => format!("{}{}", start, variants(rest, *variant)),
        Some((_, length)) if rest[length..].starts_with('.') => message,
        Some((number, length)) => format!("{}{}{}", start, variant(number), variants(&rest[length..], *variant)),
        None => message,
    }
}

/// Returns the first number of a text as an enumerator, and the text after it. `None` if the number has a name in
/// parentheses.
fn bare(text: &str, variant: Variant) -> Option<(String, &str)> {
    let (number, length) = leading_number(text)?;
    Some((variant(number), &text[length..])).filter(|(_, rest)| !rest.starts_with(" ("))
}

/// Rewrites every "1 (pre)" as "Pre". Both numbers in ", expected 1 to 5", and the value of another rank, are also
/// enumerators.
fn variants(text: &str, variant: Variant) -> String {
    const OTHER_RANK: &str = " on rank 0 and ";
    if let Some((value, rest)) = text.strip_prefix(OTHER_RANK).and_then(|rest| bare(rest, variant)) {
        return format!("{}{}{}", OTHER_RANK, value, rest);
    }
    if let Some((least, rest)) = text.strip_prefix(", expected ").and_then(|rest| bare(rest, variant)) {
        return match rest.strip_prefix(" to ").and_then(|rest| bare(rest, variant)) {
            Some((most, rest)) => format!(", expected {} to {}{}", least, most, rest),
            None => format!(", expected {}{}", least, rest),
        };
    }
    let mut said = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, number) = rest.split_at(at);
        said += before;
        let (value, length) = leading_number(number).unwrap_or((0, 1));
        let word = number[length..].strip_prefix(" (").and_then(|word| word.split_once(')'));
        match word {
            Some((word, after)) if word.bytes().all(is_in_names) => {
                said += &variant(value);
                rest = after;
            }
            _ => {
                said += &number[..length];
                rest = &number[length..];
            }
        }
    }
    said + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        in_rust(ErrorCode::InvalidArg, text.into())
    }

    #[test]
    fn calls_have_their_names_here() {
        assert_eq!(said("dsc_broadcast: root is 5, expected 0 to 3"), "broadcast: root is 5, expected 0 to 3");
        assert_eq!(said("dsc_send: peer is 5, expected 0 to 0"), "send: peer is 5, expected 0, the only one");
        assert_eq!(said("dsc_comm_split: no"), "split: no");
        assert_eq!(said("dsc_mesh_create: no"), "Mesh::new: no");
        assert_eq!(said("dsc_pipe_schedule_create: no"), "pipe_schedule: no");
        assert_eq!(said("dsc_tensor_map_forward: no"), "TensorMap::forward: no");
        assert_eq!(said("dsc_tensor_map_part: no"), "split_range: no");
        assert_eq!(said("dsc_bucket_reducer_mark_ready: no"), "Iteration::mark_ready: no");
        assert_eq!(said("dsc_op_create_premul: scale is nan"), "PremulSum::new: scale is nan");
        assert_eq!(in_rust(ErrorCode::Callback, "dsc_pipe_run: dsc_x is NULL".into()), "pipe_run: dsc_x is NULL");
        assert_eq!(said("dsc_ and others: no"), "dsc_ and others: no");
        assert_eq!(
            said("x; call dsc_bucket_reducer_finish() first, or dsc_sharded_finish()"),
            "x; call Iteration::finish() first, or Sharded::finish()"
        );
        assert_eq!(said("dsc_x is no call of dsc_y"), "dsc_x is no call of dsc_y");
    }

    #[test]
    fn fields_of_structs_are_arguments() {
        assert_eq!(
            said("x: costs->n is 3, expected 2, (options->overlap)"),
            "x: the number of values per cost is 3, expected 2, (overlap)"
        );
        assert_eq!(said("1, which dsc_pipe_run_bytes() returns"), "1, which PipeSchedule::run_bytes() returns");
        assert_eq!(said("\u{e9}->a and b->c"), "a and c");
        for place in ["params[0].", "options->"] {
            let text =
                said(&format!("dsc_x: {}struct_size is 72, expected 64 to 64: was the struct initialized?", place));
            assert!(text.contains("versions differ") && !text.contains(place), "{}", text);
        }
    }

    #[test]
    fn lengths_and_times() {
        assert_eq!(said("n_ranks is 2, expected 1 to 1"), "ranks has 2 entries, expected 1 to 1");
        assert_eq!(said("n is 0, expected 1 or more"), "counts has 0 entries, expected 1 or more");
        assert_eq!(said("init_timeout_ms is 0, expected 1 or more"), "init_timeout is 0 ms, expected 1 or more");
        assert_eq!(said("bytes is NULL"), "bytes is None");
    }

    #[test]
    fn numbers_are_enumerators() {
        assert_eq!(
            said("average is 4, expected 1 (pre), 2 (post) or 3 (none)"),
            "average is Pytorch, expected Pre, Post or None"
        );
        assert_eq!(
            said("grad_dtype is 99, expected 1 (i8) to 13 (bool)"),
            "grad_dtype is Unknown(99), expected I8 to Bool"
        );
        assert_eq!(said("drop is 2 (lightest), expected 2 weights"), "drop is Lightest, expected 2 weights");
        assert_eq!(
            said("format is 9, expected 1 (pytorch) to 5 (json)"),
            "format is Unknown(9), expected PyTorch to Json"
        );
        assert_eq!(said("placement is 1, expected 0: no"), "placement is Zigzag, expected Loop: no");
        assert_eq!(said("my_op is 3 (of 4)"), "my_op is 3 (of 4)");
        assert_eq!(said("norm is 3.5"), "norm is 3.5");
    }
}
