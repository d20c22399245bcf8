//! Finds libdsc: in the folder that DSC_LIB_DIR names, else by pkg-config.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const LIBRARY: &str = "libdsc.so";

fn main() {
    for variable in ["DSC_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={}", variable);
    }
    match find() {
        Ok(folders) => {
            for folder in &folders {
                println!("cargo:rustc-link-search=native={}", folder.display());
                println!("cargo:lib_dir={}", folder.display()); // DEP_DSC_LIB_DIR for the build scripts of dependents
            }
            println!("cargo:rustc-link-lib=dylib=dsc");
        }
        Err(problem) => {
            eprintln!("dsc-sys: libdsc was not found: {}", problem);
            eprintln!("  either set DSC_LIB_DIR to the folder that holds {}", LIBRARY);
            eprintln!("  or let `pkg-config --libs libdsc` find it (PKG_CONFIG_PATH: the folder of libdsc.pc)");
            exit(1);
        }
    }
}

/// The folders for the linker to search; none where the system's own are enough.
fn find() -> Result<Vec<PathBuf>, String> {
    match env::var_os("DSC_LIB_DIR") {
        Some(folder) => from_folder(Path::new(&folder)).map(|folder| vec![folder]),
        None => from_pkg_config(),
    }
}

fn from_folder(folder: &Path) -> Result<PathBuf, String> {
    if folder.join(LIBRARY).exists() {
        return Ok(folder.to_path_buf());
    }
    Err(format!("DSC_LIB_DIR is {}, where there is no {}", folder.display(), LIBRARY))
}

fn from_pkg_config() -> Result<Vec<PathBuf>, String> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let name = program.to_string_lossy().into_owned();
    let output = Command::new(program)
        .args(["--libs-only-L", "libdsc"])
        .output()
        .map_err(|error| format!("DSC_LIB_DIR is not set, and {} cannot be run: {}", name, error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("DSC_LIB_DIR is not set, and {} says: {}", name, said.trim()));
    }
    let flags = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(flags.split_whitespace().filter_map(|flag| flag.strip_prefix("-L")).map(PathBuf::from).collect())
}
