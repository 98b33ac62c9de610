// SPDX-License-Identifier: Apache-2.0
// Finds libtandem in the folder TANDEM_LIB_DIR, else by pkg-config. Else compiles a static one from the sources of the crate,
// or of the repository: that takes CMake, a C++ compiler and a minute or more.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=TANDEM_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    match env::var_os("TANDEM_LIB_DIR").map(PathBuf::from).or_else(installed) {
        Some(folder) => {
            println!("cargo:rustc-link-lib=dylib=tandem");
            println!("cargo:rustc-link-arg=-Wl,-rpath,{}", folder.display()); // for the tests of this crate
            println!("cargo:rustc-link-search=native={}", folder.display());
        }
        None => {
            println!("cargo:rustc-link-lib=static=tandem");
            println!("cargo:rustc-link-lib=dylib=stdc++");
            println!("cargo:rustc-link-search=native={}", compiled().display());
        }
    }
}

/// The folder of an installed libtandem of this version or later.
fn installed() -> Option<PathBuf> {
    let known = Command::new("pkg-config").args(["--atleast-version", env!("CARGO_PKG_VERSION"), "tandem"]).status().ok()?;
    let output = Command::new("pkg-config").args(["--variable=libdir", "tandem"]).output().ok()?;
    let folder = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    (known.success() && folder.join("libtandem.so").exists()).then_some(folder)
}

/// The folder of a libtandem.a that is made here.
fn compiled() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let carried = here.join("tandem_source"); // in a crate that scripts/release made
    let sources = if carried.exists() { &carried } else { here.parent().unwrap() };
    assert!(sources.join("api/CMakeLists.txt").exists(), "libtandem is not installed, and its sources are not in {}. Install it, or put the folder of libtandem.so into TANDEM_LIB_DIR.", sources.display());
    for folder in ["CMakeLists.txt", "api", "base", "cmake", "core", "cpu", "device", "hybrid", "include", "tuning"] {
        println!("cargo:rerun-if-changed={}", sources.join(folder).display());
    }
    let build = Path::new(&env::var_os("OUT_DIR").unwrap()).join("libtandem");
    let off = ["BUILD_SHARED_LIBS", "BUILD_TESTING", "TANDEM_CLI", "TANDEM_FILES"].map(|option| format!("-D{option}=OFF"));
    let jobs = env::var("NUM_JOBS").unwrap();
    run(Command::new("cmake").arg("-S").arg(sources).arg("-B").arg(&build).arg("-DCMAKE_BUILD_TYPE=Release").args(off));
    run(Command::new("cmake").arg("--build").arg(&build).args(["--target", "tandem", "--parallel", &jobs]));
    build.join("api")
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    assert!(status.success(), "{command:?} failed");
}
