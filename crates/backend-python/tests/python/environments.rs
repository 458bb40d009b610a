//! Environments of models in a sandbox: which packages they get, and what runs meanwhile.
use std::{fs, path::Path, process::Command};

use crate::support::{CONFIG, TestModel, interpreter};

/// Writes a folder of packages that an installer finds by `--index-url`: one that is only there, and a NumPy that leads to
/// the installed one.
const WRITES_PACKAGES: &str = r#"
import pathlib, sys, zipfile
import numpy

folder = pathlib.Path(sys.argv[1])
place = str(pathlib.Path(numpy.__file__).parents[1])
for name, version, files in (
    ("only-here", "1.0", {"only_here.py": "SAYS = 7\n"}),
    ("numpy", numpy.__version__, {"numpy_place.pth": place + "\n"}),
):
    (folder / name).mkdir(parents=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files |= {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files)
    wheel = f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / name / wheel, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    (folder / name / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{wheel}">{wheel}</a></body></html>')
"#;

fn python(program: &str, arguments: &[&Path]) {
    let output = Command::new(interpreter()).args(["-c", program]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn model(methods: &str) -> TestModel {
    let model = TestModel::new(CONFIG, methods);
    let packages = model.folder().join("packages");
    python(WRITES_PACKAGES, &[&packages]);
    let cache = model.folder().join("cache").display().to_string();
    model
        .with_setting("sandbox", "best-effort")
        .with_setting("environments", "on")
        .with_setting("environments-directory", &cache)
        .with_setting("pip-index-url", &format!("file://{}", packages.display()))
}

const TELLS: &str =
    "def execute(self, requests):\n    import only_here\n    return [y([only_here.SAYS]) for _ in requests]";

#[test]
fn a_model_in_a_sandbox_gets_the_packages_that_it_names() {
    let model = model(TELLS);
    fs::write(model.folder().join("m/requirements.txt"), "Only_Here == 1.0 # why\r\nnumpy\n").unwrap();
    assert_eq!(model.load().unwrap().ask(&[0.0]), Ok(vec![7.0]));
    let folders = fs::read_dir(model.folder().join("cache")).unwrap().flatten();
    assert_eq!(folders.filter(|entry| entry.path().is_dir()).count(), 1);
}

#[test]
fn a_model_in_a_sandbox_cannot_make_an_installer_run_code() {
    let model = model(TELLS);
    let package = model.folder().join("m/package");
    let has_run = model.folder().join("has_run");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("setup.py"), format!("open('{}', 'w').close()\n", has_run.display())).unwrap();
    let package = package.display();
    for (lines, why) in [
        (
            format!("--hash=sha256:00 -e {package}"),
            "is no name of a package, and the model runs in a sandbox",
        ),
        (format!("numpy\u{2028}{package}"), "has a control character or a separator of lines"),
        (format!("numpy\r-e {package}"), "has a control character or a separator of lines"),
        ("numpy\n-r http://127.0.0.1:1/x".to_owned(), "is no name of a package"),
        ("--index-url http://127.0.0.1:1\nnumpy".to_owned(), "is no name of a package"),
    ] {
        fs::write(model.folder().join("m/requirements.txt"), &lines).unwrap();
        let refusal = model.refusal();
        assert!(
            refusal.starts_with("Internal: the environment of model 'm' cannot be made: the line '")
                && refusal.contains(why),
            "{lines:?}: {refusal}"
        );
    }
    assert!(!has_run.exists() && !model.folder().join("cache").exists(), "no program was started");
}
