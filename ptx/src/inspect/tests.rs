//! Modules with and without faults.

use super::*;

/// Returns a module with one kernel `k` and this body.
fn module(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(\n\t.param .u64 p\n)\n{{\n{body}\n\tret;\n}}\n"
    )
}

fn rules(ptx: &str) -> Vec<Rule> {
    check(ptx, &Target::default()).unwrap_err().into_iter().map(|v| v.rule).collect()
}

/// Returns the message of the only violation.
fn message(ptx: &str) -> String {
    let violations = check(ptx, &Target::default()).unwrap_err();
    assert_eq!(violations.len(), 1, "{violations:?}");
    violations[0].to_string()
}

#[test]
fn reports_a_good_module() {
    let ptx = module(
        "\t.local .align 8 .b8 __local_depot0[128];\n\tbarrier.sync \t0;\n\tbar.warp.sync -1;\n\
         \t@%p1 bar.red.or.pred %p2, 0, %p1;\n\tatom.acq_rel.sys.global.add.u64 %r, [p], 1;\n\
         \tred.relaxed.gpu.add.u32 [p], 1;\n\tredux.sync.or.b32 %r1, %r2, -1;\n\tcall.uni helper, ();\n\tcall.uni helper, ();",
    );
    let ptx = format!("{ptx}.func helper()\n{{\n\tbarrier.sync 1;\n\tret;\n}}\n");
    let report = check(&ptx, &Target::default()).unwrap();
    assert_eq!((report.isa, &*report.arch), ((8, 6), "sm_90"));
    let k = &report.entries["k"];
    assert_eq!((k.line, k.barriers, k.local_bytes), (4, 2, 128));
    assert_eq!(k.calls, ["helper"]);
    assert_eq!(report.functions["helper"].barriers, 1);
}

#[test]
fn atomics_need_ordering_and_scope() {
    for (text, good) in [
        ("atom.global.add.u64 %r, [p], 1", false),
        ("atom.relaxed.global.add.u64 %r, [p], 1", false),
        ("atom.gpu.global.add.u64 %r, [p], 1", false),
        ("@%p3 red.add.u32 [p], 1", false),
        ("@!%p3 red.relaxed.cta.shared.add.u32 [p], 1", true),
        ("atom.release.cluster.exch.b32 %r, [p], 1", true),
        ("{ .reg .b32 t; atom.exch.b32 t, [p], 1; }", false),
    ] {
        let checked = check(&module(&format!("\t{text};")), &Target::default());
        assert_eq!(checked.is_ok(), good, "{text}: {checked:?}");
    }
    assert!(
        message(&module("\tatom.global.add.u64 %r, [p], 1;"))
            .starts_with("line 8: in k: `atom.global.add.u64 %r, [p], 1` has no ordering or no scope.")
    );
}

#[test]
fn names_the_cause_of_a_panic() {
    let ptx = module("\tcall.uni _RN4core9panicking11panic_const23panic_const_rem_by_zero, ();");
    let panicking = ".func _RN4core9panicking()\n{\n\tcall.uni _RN4core9panic_fmt, ();\n}\n";
    assert_eq!(
        message(&format!("{ptx}{panicking}")),
        "line 8: in k: a path that panics: `%` by a variable: use `checked_rem` \
         (_RN4core9panicking11panic_const23panic_const_rem_by_zero)"
    );
    let through = module("\tcall.uni _RN4core6option13unwrap_failed, ();");
    let helper = ".func _RN4core6option13unwrap_failed()\n{\n\tcall.uni _RN4core9panicking5panic, ();\n}\n";
    assert!(
        message(&format!("{through}{helper}"))
            .contains("in _RN4core6option13unwrap_failed: a path that panics")
    );
}

#[test]
fn refuses_functions_that_no_gpu_has() {
    let with = |declaration: &str| format!("{declaration}\n;\n{}", module(""));
    assert_eq!(
        message(&with(".extern .func (.param .b32 r) memcmp\n(.param .b64 a)")),
        "line 1: `memcmp` does not exist on a GPU: compare slices element by element, not with `==`"
    );
    assert!(message(&with(".extern .func llvm.nvvm.new()")).contains("no such intrinsic"));
    check(&with(".extern .func (.param .b32 r) vprintf\n()"), &Target::default()).unwrap();
    check(&with(".extern .shared .align 16 .b8 shared[]"), &Target::default()).unwrap();
}

#[test]
fn checks_version_target_and_kernels() {
    let good = module("");
    assert_eq!(rules(&good.replace("8.6", "7.8")), [Rule::Isa(7, 8)]);
    assert_eq!(rules(&good.replace("sm_90", "sm_80")), [Rule::Arch("sm_80".into())]);
    assert_eq!(rules(".version 8.6\n.target sm_90\n"), [Rule::NoEntry]);
    assert_eq!(rules(""), [Rule::Arch(String::new()), Rule::Isa(0, 0), Rule::NoEntry]);
    let newer = check(&good.replace("8.6", "8.7"), &Target::default()).unwrap();
    assert_eq!(newer.isa, (8, 7));
    let old = Target { arch: "sm_90".into(), isa: (7, 8) };
    assert!(check(&good.replace("8.6", "7.8"), &old).is_err(), "doorbells need 8.2 whatever is asked for");
}
