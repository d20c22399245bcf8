//! Meshes, and communicators along their axes.

use dsc::{prime_factors, ErrorCode, GroupOptions, Mesh, MeshPlanOptions};

use crate::ranks;

fn megatron() -> Mesh {
    Mesh::with_order(&[("tp", 2), ("cp", 1), ("ep", 1), ("dp", 2), ("pp", 2)], "tp-cp-ep-dp-pp").unwrap()
}

#[test]
fn ranks_and_coordinates() {
    let mesh = megatron();
    assert_eq!((mesh.size().unwrap(), mesh.axis_size("dp").unwrap()), (8, 2));
    assert_eq!(mesh.order().unwrap(), "tp-cp-ep-dp-pp");
    assert_eq!(mesh.coord(5).unwrap(), [1, 0, 0, 0, 1]);
    assert_eq!(mesh.rank(&[1, 0, 0, 0, 1]).unwrap(), 5);
    assert_eq!(mesh.filter(&[Some(0), None, None, None, Some(1)]).unwrap(), [4, 6]);
    assert_eq!((mesh.neighbor(6, "pp", 1).unwrap(), mesh.peer(1, "pp", -1).unwrap()), (2, 5));
    assert_eq!(mesh.rank_name(5, &["cp", "ep"]).unwrap(), "tp_01-dp_00-pp_01");
    let error = mesh.groups("dq").unwrap_err();
    assert_eq!(error.code, ErrorCode::InvalidArg);
    assert!(error.message.contains("did you mean \"dp\"?"), "{}", error.message);
}

#[test]
fn groups_and_plans() {
    let mesh = megatron();
    assert_eq!(mesh.group(6, "dp-tp").unwrap(), [4, 5, 6, 7]);
    assert_eq!(mesh.members("pp", &[0, -1]).unwrap(), [[0, 4], [1, 5], [2, 6], [3, 7]]);
    assert_eq!(mesh.hybrid_sizes("tp-dp").unwrap(), [2]);
    let sizes = |length| Mesh::new(&[("dp", length)])?.hybrid_sizes("dp");
    assert!(sizes(1).unwrap().is_empty() && sizes(2).unwrap().is_empty() && sizes(16).unwrap() == [2, 4, 8]);
    assert_eq!(sizes(12).unwrap(), [2, 4]);
    for (length, multiple) in [(3, 2), (10, 4)] {
        assert!(sizes(length).unwrap_err().message.ends_with(&format!("a multiple of {}", multiple)));
    }
    assert_eq!(mesh.levels("tp-dp", &[2, 2], 1).unwrap(), [[0, 2], [1, 3], [4, 6], [5, 7]]);
    let experts = mesh.experts(2, Some(1)).unwrap();
    assert_eq!((experts.axis_size("dp").unwrap(), experts.axis_size("ep").unwrap()), (2, 2));
    let options = MeshPlanOptions { experts: Some(&experts), rank: Some(3), ..Default::default() };
    let plan = mesh.plan(&options).unwrap();
    assert_eq!(plan[0], ("gtp".to_string(), vec![3]));
    assert!(plan.contains(&("mp".to_string(), vec![2, 3, 6, 7])));
    let grid = Mesh::default_grid(24).unwrap();
    assert_eq!((grid.axis_size("pipe").unwrap(), grid.axis_size("data").unwrap()), (4, 6));
    assert_eq!(grid.order().unwrap(), "data-pipe");
    assert!(Mesh::default_grid(0).unwrap_err().message.starts_with("world_size is 0; expected"));
    assert_eq!(
        (prime_factors(24).unwrap(), prime_factors(2_147_483_647).unwrap()),
        (vec![2, 2, 2, 3], vec![2_147_483_647])
    );
    assert!(prime_factors(1).unwrap().is_empty() && prime_factors(0).is_err());
}

#[test]
fn communicators_along_axes() {
    ranks(4, |world| {
        let mesh = Mesh::with_order(&[("tp", 2), ("pp", 2)], "tp-pp").unwrap();
        let pipe = mesh.comm(&world, "pp").unwrap();
        assert_eq!((pipe.size(), pipe.rank(), pipe.name()), (2, world.rank() / 2, "pp"));
        let mut told = world.rank() as u32;
        pipe.broadcast(&mut told, 1).unwrap();
        assert_eq!(told as usize, mesh.peer(world.rank(), "pp", -1).unwrap());
        let named = mesh.comm_with(&world, "tp-pp", &GroupOptions::new().name("all")).unwrap();
        assert_eq!((named.size(), named.name()), (4, "all"));
        let axes = if world.rank() == 3 { "tp" } else { "pp" };
        let error = mesh.comm(&world, axes).unwrap_err();
        assert_eq!(error.code, ErrorCode::Mismatch);
        drop((pipe, named));
        world.finalize().unwrap();
    });
}
