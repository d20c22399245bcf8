//! Meshes: ranks in a grid of named axes, the groups along these axes, and communicators for the groups.

use std::ffi::{CStr, CString};
use std::fmt;
use std::iter;
use std::os::raw::c_char;
use std::ptr::{self, NonNull};

use dsc_sys as sys;

use crate::comm::Comm;
use crate::convert::{c_string, defaults, list, natural, number, text};
use crate::error::{check, Error, Result};
use crate::group::GroupOptions;
use crate::handles::MeshHandle;
use crate::numbers::ErrorCode;

/// Ranks in a grid of named axes. A mesh gives the coordinates of each rank, and the ranks of each group. It is
/// immutable and only computes.
///
/// Several axes are written as "tp-dp", in any order. The ranks of a group are in ascending order.
///
/// ```
/// use dsc::Mesh;
///
/// # fn main() -> dsc::Result<()> {
/// let mesh = Mesh::with_order(&[("tp", 2), ("dp", 2), ("pp", 2)], "tp-dp-pp")?;
/// assert_eq!(mesh.groups("tp-dp")?, [[0, 1, 2, 3], [4, 5, 6, 7]]);
/// assert_eq!(mesh.group(5, "pp")?, [1, 5]);
/// assert_eq!(mesh.neighbor(5, "dp", 1)?, 7);
/// # Ok(())
/// # }
/// ```
pub struct Mesh {
    handle: MeshHandle,
    names: Vec<String>,
}

/// Options of [`Mesh::plan`].
#[derive(Debug)]
pub struct MeshPlanOptions<'a> {
    /// "megatron" or "deepspeed".
    pub style: &'a str,
    /// The mesh from [`Mesh::experts`]; `None`: a mesh in which the axis ep has size 1.
    pub experts: Option<&'a Mesh>,
    /// Sizes of hierarchical cp groups, the fastest-varying level first.
    pub cp_levels: &'a [usize],
    /// The number of instances of the distributed optimizer.
    pub instances: usize,
    /// Whether to include the parts of the dp x cp groups, with the sizes that [`Mesh::hybrid_sizes`] returns.
    pub hybrid: bool,
    /// The number of parts of the model on every pipeline stage.
    pub virtual_stages: usize,
    /// Only groups that contain this rank; `None`: all groups.
    pub rank: Option<usize>,
}

impl Default for MeshPlanOptions<'_> {
    fn default() -> Self {
        MeshPlanOptions {
            style: "megatron",
            experts: None,
            cp_levels: &[],
            instances: 1,
            hybrid: false,
            virtual_stages: 1,
            rank: None,
        }
    }
}

impl Mesh {
    /// Makes a mesh with the axes as listed. The last one varies fastest, as in DeepSpeed.
    pub fn new(axes: &[(&str, usize)]) -> Result<Self> {
        Self::create(axes, None)
    }

    /// Makes a mesh with the axes in an order such as "tp-cp-ep-dp-pp". The first one varies fastest, as in
    /// Megatron-LM. The order may omit axes of size 1.
    pub fn with_order(axes: &[(&str, usize)], order: &str) -> Result<Self> {
        Self::create(axes, Some(&c_string("order", order)?))
    }

    fn create(axes: &[(&str, usize)], order: Option<&CString>) -> Result<Self> {
        let texts = axes.iter().map(|(name, _)| c_string("an axis", name)).collect::<Result<Vec<_>>>()?;
        let names: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let sizes = axes.iter().map(|(name, size)| number(name, *size)).collect::<Result<Vec<_>>>()?;
        let n_axes = axes.len();
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut options = defaults(|raw, bytes| unsafe { sys::dsc_mesh_options_init(raw, bytes) })?;
        options.order = order.map_or(ptr::null(), |order| order.as_ptr());
        let mut mesh = ptr::null_mut();
        // SAFETY: there are n_axes names and sizes. All arguments, including mesh, outlive the call.
        check(unsafe { sys::dsc_mesh_create(names.as_ptr(), sizes.as_ptr(), n_axes, &options, &mut mesh) })?;
        Self::taken(mesh, axes.iter().map(|(name, _)| name.to_string()).collect())
    }

    fn taken(mesh: *mut sys::dsc_mesh_t, names: Vec<String>) -> Result<Self> {
        let handle = NonNull::new(mesh).ok_or_else(|| {
            Error::new(ErrorCode::Internal, "the library returned neither a mesh nor an error".into())
        })?;
        Ok(Mesh { handle: MeshHandle(handle), names })
    }

    fn raw(&self) -> *mut sys::dsc_mesh_t {
        self.handle.0.as_ptr()
    }

    /// Makes DeepSpeed's default mesh: the prime factors go in turn to the axes "pipe" and "data".
    pub fn default_grid(world_size: usize) -> Result<Self> {
        let factors = factors("world_size", world_size)?;
        let of = |first| factors.iter().skip(first).step_by(2).product();
        Self::new(&[("pipe", of(0)), ("data", of(1))])
    }

    /// Makes the mesh of the experts for this mesh of the dense layers. It has the same ranks, order and pp groups.
    /// Its axis cp has size 1, its axis tp has size `expert_tp` (`None`: as in this mesh), and dp takes the remaining
    /// ranks.
    pub fn experts(&self, ep: usize, expert_tp: Option<usize>) -> Result<Mesh> {
        let (ep, tp) = (number("ep", ep)?, number("expert_tp", expert_tp.unwrap_or(0))?);
        let mut experts = ptr::null_mut();
        // SAFETY: the library checks the handle, and experts outlives the call.
        check(unsafe { sys::dsc_mesh_create_experts(self.raw(), ep, tp, &mut experts) })?;
        Self::taken(experts, self.names.clone())
    }

    /// The number of ranks.
    pub fn size(&self) -> Result<usize> {
        let mut size = 0;
        // SAFETY: the library checks the handle, and size outlives the call.
        check(unsafe { sys::dsc_mesh_size(self.raw(), &mut size) })?;
        Ok(natural(size))
    }

    /// The size of an axis.
    pub fn axis_size(&self, axis: &str) -> Result<usize> {
        let (axis, mut size) = (c_string("axis", axis)?, 0);
        // SAFETY: the library checks the handle; axis and size outlive the call.
        check(unsafe { sys::dsc_mesh_axis_size(self.raw(), axis.as_ptr(), &mut size) })?;
        Ok(natural(size))
    }

    /// The order of the axes, the fastest-varying first, such as "tp-cp-ep-dp-pp".
    pub fn order(&self) -> Result<String> {
        text(|room, capacity, bytes| {
            // SAFETY: the library checks the handle; room has capacity bytes, and bytes outlives the call.
            unsafe { sys::dsc_mesh_order(self.raw(), room, capacity, bytes) }
        })
    }

    /// The coordinates of a rank, one per axis, in the order in which the axes were listed.
    pub fn coord(&self, rank: usize) -> Result<Vec<usize>> {
        let mut coords = vec![0; self.names.len()];
        let (rank, n_coords) = (number("rank", rank)?, coords.len());
        // SAFETY: the library checks the handle. coords has n_coords entries.
        check(unsafe { sys::dsc_mesh_coord(self.raw(), rank, coords.as_mut_ptr(), n_coords) })?;
        Ok(coords.into_iter().map(natural).collect())
    }

    /// The rank with these coordinates, one per axis, in the order in which the axes were listed.
    pub fn rank(&self, coords: &[usize]) -> Result<usize> {
        let listed = numbers("a coordinate", coords)?;
        let (n_coords, mut rank) = (listed.len(), 0);
        // SAFETY: the library checks the handle; there are n_coords coordinates, and rank outlives the call.
        check(unsafe { sys::dsc_mesh_rank(self.raw(), listed.as_ptr(), n_coords, &mut rank) })?;
        Ok(natural(rank))
    }

    /// All ranks with these coordinates, in ascending order. `None` stands for any coordinate.
    pub fn filter(&self, coords: &[Option<usize>]) -> Result<Vec<usize>> {
        let listed = coords
            .iter()
            .map(|coord| coord.map_or(Ok(-1), |coord| number("a coordinate", coord)))
            .collect::<Result<Vec<_>>>()?;
        let n_coords = listed.len();
        let found = lists(|ranks, capacity, n_groups, n_ranks| {
            *n_groups = 1;
            // SAFETY: the library checks the handle. The lengths of coordinates and ranks are right.
            unsafe { sys::dsc_mesh_filter(self.raw(), listed.as_ptr(), n_coords, ranks, capacity, n_ranks) }
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// The rank `steps` further along an axis, which wraps around.
    pub fn neighbor(&self, rank: usize, axis: &str, steps: i32) -> Result<usize> {
        let (rank, axis, mut peer) = (number("rank", rank)?, c_string("axis", axis)?, 0);
        // SAFETY: the library checks the handle; axis and peer outlive the call.
        check(unsafe { sys::dsc_mesh_neighbor(self.raw(), rank, axis.as_ptr(), steps, &mut peer) })?;
        Ok(natural(peer))
    }

    /// The rank with this coordinate along an axis, and the other coordinates of `rank`. 0 is the first position, -1
    /// the last.
    pub fn peer(&self, rank: usize, axis: &str, coord: i32) -> Result<usize> {
        let (rank, axis, mut peer) = (number("rank", rank)?, c_string("axis", axis)?, 0);
        // SAFETY: the library checks the handle. axis and peer outlive the call.
        check(unsafe { sys::dsc_mesh_peer(self.raw(), rank, axis.as_ptr(), coord, &mut peer) })?;
        Ok(natural(peer))
    }

    /// DeepSpeed's name of a rank, such as "pipe_00-data_01", without the axes in `omit`.
    pub fn rank_name(&self, rank: usize, omit: &[&str]) -> Result<String> {
        let (rank, omit) = (number("rank", rank)?, c_string("omit", &omit.join("-"))?);
        text(|room, capacity, bytes| {
            let (inner, outer) = (ptr::null(), ptr::null());
            // SAFETY: the library checks the handle; omit outlives the call, and room has capacity bytes.
            unsafe { sys::dsc_mesh_rank_name(self.raw(), rank, omit.as_ptr(), inner, outer, room, capacity, bytes) }
        })
    }

    /// All groups along some axes, such as "tp-dp".
    pub fn groups(&self, axes: &str) -> Result<Vec<Vec<usize>>> {
        let axes = c_string("axes", axes)?;
        lists(|ranks, capacity, n_groups, size| {
            // SAFETY: the library checks the handle. axes outlives the call, and ranks has the given capacity.
            unsafe { sys::dsc_mesh_groups(self.raw(), axes.as_ptr(), ranks, capacity, n_groups, size) }
        })
    }

    /// The group along some axes that contains a rank. Other groups are not computed.
    pub fn group(&self, rank: usize, axes: &str) -> Result<Vec<usize>> {
        let (rank, axes) = (number("rank", rank)?, c_string("axes", axes)?);
        let found = lists(|ranks, capacity, n_groups, size| {
            *n_groups = 1;
            let unasked = ptr::null_mut();
            // SAFETY: the library checks the handle. axes outlives the call, and ranks has the given capacity.
            unsafe { sys::dsc_mesh_group(self.raw(), rank, axes.as_ptr(), ranks, capacity, size, unasked, unasked) }
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// One level of the hierarchical groups along some axes. Each group is treated as a grid of these sizes, of which
    /// the first varies fastest.
    pub fn levels(&self, axes: &str, sizes: &[usize], level: usize) -> Result<Vec<Vec<usize>>> {
        let (axes, sizes) = (c_string("axes", axes)?, numbers("a size", sizes)?);
        lists(|ranks, capacity, n_groups, size| {
            let (box_sizes, n_levels) = (sizes.as_ptr(), sizes.len());
            // SAFETY: the library checks the handle. axes and sizes outlive the call, and ranks has the given capacity.
            unsafe {
                let (mesh, axes) = (self.raw(), axes.as_ptr());
                sys::dsc_mesh_levels(mesh, axes, box_sizes, n_levels, level, ranks, capacity, n_groups, size)
            }
        })
    }

    /// For each group along some axes, the group of its members at these positions. Negative positions count from the
    /// end.
    pub fn members(&self, axes: &str, positions: &[i32]) -> Result<Vec<Vec<usize>>> {
        let axes = c_string("axes", axes)?;
        lists(|ranks, capacity, n_groups, size| {
            let (first, n) = (positions.as_ptr(), positions.len());
            // SAFETY: the library checks the handle. axes and positions outlive the call, and ranks has the given
            // capacity.
            unsafe { sys::dsc_mesh_members(self.raw(), axes.as_ptr(), first, n, ranks, capacity, n_groups, size) }
        })
    }

    /// The sizes of the parts into which Megatron-LM's hybrid context parallelism divides the groups along some axes:
    /// 2, 4 and so on, up to half of a group. A group must be a single rank, or a multiple of each size.
    pub fn hybrid_sizes(&self, axes: &str) -> Result<Vec<usize>> {
        let length = self.group(0, axes)?.len();
        let doubled = iter::successors(Some(2), |size| Some(size * 2));
        let sizes: Vec<_> = doubled.take_while(|size| *size <= length / 2).collect();
        let largest = sizes.last().copied().unwrap_or(2.min(length));
        if length % largest != 0 {
            let text = format!("the groups have {} ranks; expected a multiple of {}", length, largest);
            return Err(Error::invalid(text));
        }
        Ok(sizes)
    }

    /// Every group that a framework makes from this mesh, by name, in the order in which all ranks make them.
    pub fn plan(&self, options: &MeshPlanOptions<'_>) -> Result<Vec<(String, Vec<usize>)>> {
        let (style, levels) = (c_string("style", options.style)?, numbers("a level", options.cp_levels)?);
        // SAFETY: `defaults` passes memory for the struct, and its size.
        let mut raw = defaults(|raw, bytes| unsafe { sys::dsc_mesh_plan_options_init(raw, bytes) })?;
        raw.style = style.as_ptr();
        raw.experts = options.experts.map_or(ptr::null(), |mesh| mesh.raw());
        raw.cp_levels = levels.as_ptr();
        raw.n_cp_levels = levels.len();
        raw.instances = number("instances", options.instances)?;
        raw.hybrid = i32::from(options.hybrid);
        raw.virtual_stages = number("virtual_stages", options.virtual_stages)?;
        raw.rank = options.rank.map_or(Ok(-1), |rank| number("rank", rank))?;
        self.planned(&raw)
    }

    fn planned(&self, options: &sys::dsc_mesh_plan_options_t) -> Result<Vec<(String, Vec<usize>)>> {
        let (mut names, mut starts, mut ranks): (Vec<*const c_char>, Vec<usize>, Vec<i32>) = Default::default();
        let (mut n_groups, mut n_ranks) = (0, 0);
        for _ in 0..2 {
            names.resize(n_groups, ptr::null());
            starts.resize(n_groups + 1, 0);
            ranks.resize(n_ranks, 0);
            let (text, start, rank) = (names.as_mut_ptr(), starts.as_mut_ptr(), ranks.as_mut_ptr());
            let (groups, all, mesh) = (names.len(), ranks.len(), self.raw());
            // SAFETY: the library checks the handle. The memory that the options point to outlives the call, and the
            // capacities are right.
            check(unsafe {
                sys::dsc_mesh_plan(mesh, options, text, start, groups, rank, all, &mut n_groups, &mut n_ranks)
            })?;
        }
        let named = names.iter().enumerate().map(|(group, name)| {
            // SAFETY: the name is a static text of the library.
            let name = unsafe { CStr::from_ptr(*name) }.to_string_lossy().into_owned();
            (name, ranks[starts[group]..starts[group + 1]].iter().copied().map(natural).collect())
        });
        Ok(named.collect())
    }

    /// Makes the communicators of all groups along some axes. Every rank gets the communicator of its own group.
    /// Collective over `comm`, which must be as large as the mesh.
    pub fn comm(&self, comm: &Comm, axes: &str) -> Result<Comm> {
        self.comm_with(comm, axes, &GroupOptions::new())
    }

    /// Does the same as [`comm`](Mesh::comm), with options.
    pub fn comm_with(&self, comm: &Comm, axes: &str, options: &GroupOptions) -> Result<Comm> {
        let (axes, mut group) = (c_string("axes", axes)?, ptr::null_mut());
        let result = options.with_raw(|raw| {
            // SAFETY: the library checks the handles. axes, options and group outlive the call.
            unsafe { sys::dsc_mesh_comm(self.raw(), comm.raw(), axes.as_ptr(), raw, &mut group) }
        })?;
        comm.check(result, "mesh_comm")?;
        Ok(Comm::from_group(group)?.expect("every rank is in a group"))
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mesh").field("size", &self.size()).field("order", &self.order()).finish()
    }
}

/// The prime factors of a number of 1 or more, in ascending order.
pub fn prime_factors(n: usize) -> Result<Vec<usize>> {
    factors("n", n)
}

fn factors(name: &str, n: usize) -> Result<Vec<usize>> {
    number(name, n)?;
    if n == 0 {
        return Err(Error::invalid(format!("{} is 0; expected 1 or more", name)));
    }
    let (mut factors, mut rest, mut factor) = (Vec::new(), n, 2);
    while factor * factor <= rest {
        if rest % factor == 0 {
            factors.push(factor);
            rest /= factor;
        } else {
            factor += 1;
        }
    }
    factors.extend(Some(rest).filter(|rest| *rest > 1));
    Ok(factors)
}

fn numbers(name: &str, values: &[usize]) -> Result<Vec<i32>> {
    values.iter().map(|value| number(name, *value)).collect()
}

/// Reads lists of equal length, from a function that takes a buffer, its capacity and pointers for their number and
/// length.
fn lists(read: impl Fn(*mut i32, usize, &mut usize, &mut usize) -> sys::dsc_result_t) -> Result<Vec<Vec<usize>>> {
    let (mut n_groups, mut size) = (0, 0);
    let ranks = list(0, 0, |ranks, capacity, n_ranks| {
        let result = read(ranks, capacity, &mut n_groups, &mut size);
        *n_ranks = n_groups * size;
        result
    })?;
    Ok(ranks.chunks(size.max(1)).map(|group| group.iter().copied().map(natural).collect()).collect())
}
