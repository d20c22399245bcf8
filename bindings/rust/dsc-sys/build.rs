//! Finds libdsc: in the folder in DSC_LIB_DIR, or in that folder's subfolder for the architecture, or else by
//! pkg-config.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

const LIBRARY: &str = "libdsc.so";
const SONAME: &str = "libdsc.so.0";

fn main() {
    for variable in ["DSC_LIB_DIR", "PKG_CONFIG", "PKG_CONFIG_PATH", "DOCS_RS"] {
        println!("cargo:rerun-if-env-changed={}", variable);
    }
    if env::var_os("DOCS_RS").is_some() {
        return; // nothing is linked for documentation, and docs.rs has no libdsc
    }
    match find() {
        Ok(folders) => {
            for folder in &folders {
                println!("cargo:rustc-link-search=native={}", folder.display());
                // available as DEP_DSC_LIB_DIR in the build scripts of dependents
                println!("cargo:lib_dir={}", folder.display());
            }
            println!("cargo:rustc-link-lib=dylib=dsc");
        }
        Err(problem) => {
            eprintln!("dsc-sys: libdsc was not found: {}", problem);
            eprintln!("  either set DSC_LIB_DIR to the folder that holds {}, such as PREFIX/lib", LIBRARY);
            eprintln!("  or let `pkg-config --libs libdsc` find it (PKG_CONFIG_PATH: the folder of libdsc.pc)");
            exit(1);
        }
    }
}

/// Returns the folders for the linker to search; empty if the system's folders are enough.
fn find() -> Result<Vec<PathBuf>, String> {
    match env::var_os("DSC_LIB_DIR") {
        Some(folder) => from_folder(Path::new(&folder)).map(|folder| vec![folder]),
        None => from_pkg_config(),
    }
}

/// Returns the folder itself, or its subfolder for the architecture, which Debian uses: lib/x86_64-linux-gnu.
fn from_folder(folder: &Path) -> Result<PathBuf, String> {
    let below = folder.join(architecture());
    for candidate in [folder, &below] {
        if candidate.join(LIBRARY).exists() {
            return Ok(candidate.to_path_buf());
        }
    }
    let problem = format!("DSC_LIB_DIR is {}, which has no {}", folder.display(), LIBRARY);
    for candidate in [folder, &below] {
        if candidate.join(SONAME).exists() {
            let reason = "is for running programs; linking needs the development files (Debian: libdsc-dev)";
            return Err(format!("{}; {} in {} {}", problem, SONAME, candidate.display(), reason));
        }
    }
    Err(format!("{}, nor has {} below it", problem, architecture()))
}

/// Returns, for example, "x86_64-linux-gnu" for x86_64-unknown-linux-gnu.
fn architecture() -> String {
    env::var("TARGET").unwrap_or_default().replace("-unknown-", "-").replace("-pc-", "-")
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
