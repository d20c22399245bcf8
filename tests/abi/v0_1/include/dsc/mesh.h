/**
 * @file mesh.h
 * @brief Meshes: named axes over ranks, the groups along them, and communicators for these groups.
 *
 * A mesh gives the coordinates of each rank: dp 1 of 4, pp 0 of 2, and so on. It is plain arithmetic and
 * needs no communicator; dsc_mesh_comm() creates communicators for the groups along given axes. The rules are
 * those of Megatron-LM (megatron/core/parallel_state.py, commit d98e8a6) for meshes with an order, and of
 * DeepSpeed (deepspeed/runtime/pipe/topology.py, commit edaa722) for meshes without; see docs/mesh.md.
 *
 * A list of axes is written as "tp-dp": one or more names, each once, with '-' between them, in any order. A
 * group along given axes consists of the ranks that differ in no other axis. Groups, and the ranks within a
 * group, are ordered by coordinates, the first axis varying fastest; so the ranks of a group are in ascending
 * order.
 *
 * Lists of groups contain one group after another, all of the same length.
 */
#ifndef DSC_MESH_H
#define DSC_MESH_H

#include <dsc/comm.h>
#include <dsc/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** @brief Named axes over ranks; it never changes. Thread-safety: any thread, several at once. */
typedef struct dsc_mesh dsc_mesh_t;

/** @brief Options of dsc_mesh_create(). Fill with dsc_mesh_options_init(). */
typedef struct dsc_mesh_options {
  size_t struct_size;  /**< size of this struct as the caller compiled it */
  const char* order;   /**< such as "tp-cp-ep-dp-pp": names of axes, the fastest first (along it, neighbours
                          have consecutive ranks); axes of size 1 may be omitted. NULL: the axes as listed, the
                          last one fastest */
  int32_t world_size;  /**< required product of the sizes; 0: any */
  int32_t rank_offset; /**< the first rank, 0 or more; default 0 */
} dsc_mesh_options_t;

/** @brief Options of dsc_mesh_plan(). Fill with dsc_mesh_plan_options_init(). */
typedef struct dsc_mesh_plan_options {
  size_t struct_size;        /**< size of this struct as the caller compiled it */
  const char* style;         /**< "megatron" (default) or "deepspeed" */
  const dsc_mesh_t* experts; /**< mesh of dsc_mesh_create_experts(); NULL: one with ep 1 */
  const int32_t* cp_levels;  /**< group size of each level of hierarchical cp groups, the fastest-varying
                                level first; NULL: none */
  size_t n_cp_levels;        /**< entries of cp_levels */
  int32_t instances;         /**< of the distributed optimizer, 1 or more; default 1 */
  int32_t hybrid; /**< 1: also list Megatron-LM's hybrid dp x cp groups, of 2, 4, ... ranks up to half of a dp
                     x cp group; default 0 */
  int32_t virtual_stages; /**< parts of the model on every pipeline stage, 1 or more; default 1 */
  int32_t rank;           /**< list only the groups of this rank; -1 (default): all */
} dsc_mesh_plan_options_t;

/**
 * @brief Fills mesh options with their defaults.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_mesh_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_options_init(dsc_mesh_options_t* options, size_t struct_size);

/**
 * @brief Creates a mesh.
 *
 * With an order, the rules of Megatron-LM's rank generator apply: an axis that the order omits must have size
 * 1, and "ep" and "cp" cannot both be above 1, since experts have a separate mesh.
 *
 * @param[in] names [n_axes] of the axes: 1 to 31 letters, digits or '_' each, all different
 * @param[in] sizes [n_axes] 1 or more each; one may be -1: it is computed from the world size
 * @param[in] n_axes 1 to 32
 * @param[in] options NULL: defaults
 * @param[out] mesh the new mesh; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: everything is copied. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_OVERFLOW for more than 2^31 - 1 ranks; DSC_ERR_UNSUPPORTED;
 * DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_create(const char* const* names, const int32_t* sizes, size_t n_axes,
                                     const dsc_mesh_options_t* options, dsc_mesh_t** mesh);

/**
 * @brief Creates the mesh of the experts for a mesh of the dense layers. It has the same ranks and the same
 * order, cp 1, ep and expert_tp; the remaining factor is dp.
 * @param[in] mesh the mesh of the dense layers. It has an order; only tp, cp, dp and pp may be above size 1;
 * it has an axis "ep" if ep is above 1
 * @param[in] ep expert parallel size, 1 or more
 * @param[in] expert_tp tensor parallel size of experts, 1 or more; 0: that of the dense layers
 * @param[out] experts the new mesh; NULL on failure
 *
 * Collective: no. Blocking: no. Ownership: the caller releases experts; it is independent of mesh. Threads:
 * any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG, also when the pp groups of the two meshes would differ;
 * DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_create_experts(const dsc_mesh_t* mesh, int32_t ep, int32_t expert_tp,
                                             dsc_mesh_t** experts);

/**
 * @brief Releases a mesh. Communicators made from it stay valid.
 * @param[in] mesh mesh; NULL does nothing
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_destroy(dsc_mesh_t* mesh);

/**
 * @brief Returns the number of ranks.
 * @param[in] mesh mesh
 * @param[out] size 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_size(const dsc_mesh_t* mesh, int32_t* size);

/**
 * @brief Writes the order of the axes, the fastest first, such as "tp-cp-ep-dp-pp".
 * @param[in] mesh mesh
 * @param[out] text may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_order(const dsc_mesh_t* mesh, char* text, size_t capacity, size_t* needed);

/**
 * @brief Returns the size of an axis.
 * @param[in] mesh mesh
 * @param[in] axis its name
 * @param[out] size 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG for an unknown axis (the error suggests the nearest one);
 * DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_axis_size(const dsc_mesh_t* mesh, const char* axis, int32_t* size);

/**
 * @brief Writes the coordinates of a rank.
 * @param[in] mesh mesh
 * @param[in] rank rank of the mesh
 * @param[out] coords one per axis, in the order of dsc_mesh_create()
 * @param[in] n_coords number of axes
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_coord(const dsc_mesh_t* mesh, int32_t rank, int32_t* coords, size_t n_coords);

/**
 * @brief Returns the rank with these coordinates.
 * @param[in] mesh mesh
 * @param[in] coords one per axis, in the order of dsc_mesh_create()
 * @param[in] n_coords number of axes
 * @param[out] rank the rank, rank_offset included
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_rank(const dsc_mesh_t* mesh, const int32_t* coords, size_t n_coords,
                                   int32_t* rank);

/**
 * @brief Writes all ranks with these coordinates, in ascending order.
 * @param[in] mesh mesh
 * @param[in] coords one per axis, in the order of dsc_mesh_create(); -1: any
 * @param[in] n_coords number of axes
 * @param[out] ranks the ranks; may be NULL with capacity 0
 * @param[in] capacity entries of ranks
 * @param[out] needed number of these ranks, 1 or more
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_filter(const dsc_mesh_t* mesh, const int32_t* coords, size_t n_coords,
                                     int32_t* ranks, size_t capacity, size_t* needed);

/**
 * @brief Returns the rank that is a number of steps away along one axis. The axis is a ring: after the last
 * coordinate comes the first.
 * @param[in] mesh mesh
 * @param[in] rank rank of the mesh
 * @param[in] axis name of the axis
 * @param[in] steps any number; 1: the next rank, -1: the previous one
 * @param[out] peer rank of the mesh
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_neighbor(const dsc_mesh_t* mesh, int32_t rank, const char* axis, int32_t steps,
                                       int32_t* peer);

/**
 * @brief Returns the rank that has the given coordinate along one axis and is otherwise like rank:
 * DeepSpeed's stage_to_global().
 * @param[in] mesh mesh
 * @param[in] rank rank of the mesh
 * @param[in] axis name of the axis
 * @param[in] coord -size to size - 1; negative ones count from the end: 0 is the first, -1 the last
 * @param[out] peer rank of the mesh
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_peer(const dsc_mesh_t* mesh, int32_t rank, const char* axis, int32_t coord,
                                   int32_t* peer);

/**
 * @brief Writes the name of a rank, such as "pipe_00-data_01": DeepSpeed's get_rank_repr().
 * @param[in] mesh mesh
 * @param[in] rank rank of the mesh
 * @param[in] omit axes to omit, such as "data-pipe"; axes that the mesh does not have are ignored; NULL: none
 * @param[in] inner any text between an axis and its number; NULL: "_"
 * @param[in] outer any text between axes; NULL: "-"
 * @param[out] text may be NULL with capacity 0
 * @param[in] capacity bytes of text
 * @param[out] needed size of the text in bytes, the final zero included
 *
 * Axes are in the order of dsc_mesh_create(); numbers have at least two digits.
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_rank_name(const dsc_mesh_t* mesh, int32_t rank, const char* omit,
                                        const char* inner, const char* outer, char* text, size_t capacity,
                                        size_t* needed);

/**
 * @brief Lists all groups along the given axes.
 * @param[in] mesh mesh
 * @param[in] axes such as "tp-dp"
 * @param[out] ranks the ranks, group after group; may be NULL with capacity 0
 * @param[in] capacity entries of ranks; the size of the mesh is enough
 * @param[out] n_groups number of groups
 * @param[out] group_size number of ranks of each group
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_groups(const dsc_mesh_t* mesh, const char* axes, int32_t* ranks,
                                     size_t capacity, size_t* n_groups, size_t* group_size);

/**
 * @brief Writes the group of one rank along the given axes, without listing the others.
 * @param[in] mesh mesh
 * @param[in] rank rank of the mesh
 * @param[in] axes such as "tp-dp"
 * @param[out] ranks the group's ranks; may be NULL with capacity 0
 * @param[in] capacity entries of ranks
 * @param[out] needed number of ranks of the group
 * @param[out] group number of the group, as listed by dsc_mesh_groups(); may be NULL
 * @param[out] member index of the rank in the group, from 0; may be NULL
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_group(const dsc_mesh_t* mesh, int32_t rank, const char* axes, int32_t* ranks,
                                    size_t capacity, size_t* needed, size_t* group, size_t* member);

/**
 * @brief Lists one level of hierarchical groups: each group along the given axes is divided into several
 * levels, the first one fastest.
 *
 * These are Megatron-LM's hierarchical groups. With two levels of sizes a and b, level 0 cuts each group into
 * runs of a ranks, as hybrid groups and instances of the distributed optimizer do. Level 1 joins the ranks
 * that have the same position in these runs.
 *
 * @param[in] mesh mesh
 * @param[in] axes such as "cp"
 * @param[in] sizes [n_levels] sizes of the levels, 1 or more each; their product is the size of a group
 * @param[in] n_levels 1 or more
 * @param[in] level the level to list, 0 to n_levels - 1
 * @param[out] ranks the ranks, group after group; may be NULL with capacity 0
 * @param[in] capacity entries of ranks; the size of the mesh is enough
 * @param[out] n_groups number of groups
 * @param[out] group_size number of ranks of each group
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_levels(const dsc_mesh_t* mesh, const char* axes, const int32_t* sizes,
                                     size_t n_levels, size_t level, int32_t* ranks, size_t capacity,
                                     size_t* n_groups, size_t* group_size);

/**
 * @brief Lists groups made of selected members of each group along the given axes.
 *
 * For example, the first and last members of "pp" ({0, -1}) share the word embeddings; the first ({0}) has
 * the position embeddings.
 *
 * @param[in] mesh mesh
 * @param[in] axes such as "pp"
 * @param[in] positions positions in each group, from 0, or negative from the end; repeated positions are
 * ignored
 * @param[in] n_positions 1 or more
 * @param[out] ranks the ranks, group after group; may be NULL with capacity 0
 * @param[in] capacity entries of ranks; the size of the mesh is enough
 * @param[out] n_groups number of groups
 * @param[out] group_size number of ranks of each group
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_NOMEM; DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_members(const dsc_mesh_t* mesh, const char* axes, const int32_t* positions,
                                      size_t n_positions, int32_t* ranks, size_t capacity, size_t* n_groups,
                                      size_t* group_size);

/**
 * @brief Fills plan options with their defaults: all groups of Megatron-LM, no experts.
 * @param[out] options the struct to fill
 * @param[in] struct_size sizeof(dsc_mesh_plan_options_t) as the caller compiled it
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_ERR_INVALID_ARG
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_plan_options_init(dsc_mesh_plan_options_t* options, size_t struct_size);

/**
 * @brief Lists every group that Megatron-LM's initialize_model_parallel() or DeepSpeed's PipelineParallelGrid
 * creates, in the order of creation.
 *
 * "megatron": gtp, dp_cp (each followed by its intra_dp_cp and hybrid_dp_cp), dp, cp (each followed by its
 * hcp), mp, tp, pp (each followed by its embd and pos_embd), tp_dp_cp, tp_dp, tp_cp, ep_gtp, ep, ep_tp,
 * tp_ep_mp, tp_ep_pp, tp_ep_pp_gtp, ep_dp (each followed by its intra_ep_dp and inter_ep_dp), intra_dist_opt.
 * Axes that the mesh does not have count as size 1. "deepspeed": ds_model, dp, pp, slice, of a mesh with axes
 * pipe, data and model.
 *
 * @param[in] mesh mesh of the dense layers
 * @param[in] options NULL: defaults
 * @param[out] names [group_capacity] name of each group, a static text; may be NULL with group_capacity 0
 * @param[out] starts [group_capacity + 1] group g is ranks[starts[g]] to ranks[starts[g + 1] - 1]:
 * group_capacity + 1 entries; may be NULL with group_capacity 0
 * @param[in] group_capacity entries of names; starts has one more
 * @param[out] ranks [rank_capacity] may be NULL with rank_capacity 0
 * @param[in] rank_capacity entries of ranks
 * @param[out] n_groups number of groups
 * @param[out] n_ranks total number of ranks in them
 *
 * Either both capacities are 0, to ask only for the numbers, or neither is.
 *
 * Collective: no. Blocking: no. Threads: any.
 * @return DSC_OK; DSC_TRUNCATED; DSC_ERR_INVALID_ARG; DSC_ERR_BAD_HANDLE; DSC_ERR_UNSUPPORTED; DSC_ERR_NOMEM;
 * DSC_ERR_FORKED
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_plan(const dsc_mesh_t* mesh, const dsc_mesh_plan_options_t* options,
                                   const char** names, size_t* starts, size_t group_capacity, int32_t* ranks,
                                   size_t rank_capacity, size_t* n_groups, size_t* n_ranks);

/**
 * @brief Creates the communicators of all groups along the given axes in one call; each rank gets that of its
 * group.
 *
 * Rank r of comm is rank r + rank_offset of the mesh. The order in the group is that of dsc_mesh_groups().
 * Without a name in the options, the group is named after its axes in the order of the mesh, such as "tp-dp".
 *
 * @param[in] mesh the mesh, the same on all ranks, as large as comm
 * @param[in] comm the parent
 * @param[in] axes such as "tp-dp", the same on all ranks
 * @param[in] options NULL: defaults; the same on all ranks
 * @param[out] group the new communicator; NULL on failure
 *
 * Collective: yes, every rank of comm in the same order as its other collectives. Blocking: until all ranks
 * have called it. Ownership: as dsc_comm_split(). Threads: one at a time per communicator.
 * @return as dsc_comm_split(); DSC_ERR_MISMATCH, on all ranks, when meshes or axes differ; comm keeps
 * working. DSC_ERR_INVALID_ARG, on all ranks, for a mesh of another size or unknown axes
 * @since 0.1
 */
DSC_API dsc_result_t dsc_mesh_comm(const dsc_mesh_t* mesh, dsc_comm_t* comm, const char* axes,
                                   const dsc_comm_options_t* options, dsc_comm_t** group);

#ifdef __cplusplus
}
#endif

#endif /* DSC_MESH_H */
