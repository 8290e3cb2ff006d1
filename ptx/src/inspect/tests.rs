//! Tests of the rules, on modules that keep or violate them.

use super::*;

/// Returns a PTX module with a single kernel `k` with this body.
fn module(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_75\n.address_size 64\n.visible .entry k(\n\t.param .u64 p\n)\n{{\n{body}\n\tret;\n}}\n"
    )
}

fn rules(ptx: &str) -> Vec<Rule> {
    check(ptx, &Target::default()).unwrap_err().into_iter().map(|v| v.rule).collect()
}

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
    assert_eq!((report.isa, &*report.arch), ((8, 6), "sm_75"));
    let k = &report.entries["k"];
    assert_eq!((k.line, k.barriers, k.local_bytes), (4, 2, 128));
    assert_eq!(k.calls, ["helper"]);
    assert_eq!(report.functions["helper"].barriers, 1);
}

#[test]
fn one_way_fences_need_hopper() {
    let ptx = module("\t{ fence.release.gpu; }");
    assert_eq!(rules(&ptx), [Rule::OneWayFence("fence.release.gpu".into())]);
    let hopper = Target { arch: "sm_90".into(), ..Target::default() };
    check(&ptx.replace("sm_75", "sm_90"), &hopper).unwrap();
    check(&module("\tfence.acq_rel.gpu; // sm_90: fence.release.gpu;"), &Target::default()).unwrap();
}

#[test]
fn call_between_barriers_requires_a_branch() {
    const BARRIER: &str = "\tbarrier.sync \t0;\n";
    const CALL: &str = "\tcall.uni (retval0), helper, (param0);\n";
    let module = |body: String| format!("{}.func helper()\n{{\n\tret;\n}}\n", module(&body));
    let refused = module(format!("{BARRIER}{CALL}\tbarrier.red.or.pred %p2, 0, %p1;"));
    assert_eq!(rules(&refused), [Rule::CallBetweenBarriers("helper".into())]);
    assert!(message(&refused).starts_with("in `k`: a call of helper lies between two barriers of the block"));
    for separate in ["$L__BB0_1:\n", "\t@%p1 bra \t$L__BB0_1;\n$L__BB0_1:\n"] {
        for body in
            [format!("{BARRIER}{separate}{CALL}{BARRIER}"), format!("{BARRIER}{CALL}{separate}{BARRIER}")]
        {
            check(&module(body.clone()), &Target::default()).unwrap_or_else(|why| panic!("{body}: {why:?}"));
        }
    }
    check(&module(format!("{CALL}{BARRIER}{BARRIER}{CALL}")), &Target::default()).unwrap();
    check(&module(format!("{BARRIER}{CALL}\tbar.warp.sync -1;")), &Target::default()).unwrap();
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
            .starts_with("in `k`: `atom.global.add.u64 %r, [p], 1` has no ordering or no scope.")
    );
}

fn function(name: &str, body: &str) -> String {
    format!(".func {name}()\n{{\n{body}\n}}\n")
}

const REM_BY_ZERO: &str = "_RNvNtNtCs2_4core9panicking11panic_const23panic_const_rem_by_zero";
const PANIC_FMT: &str = "_RNvNtCs2_4core9panicking9panic_fmt";
const UNWRAP_FAILED: &str = "_RNvNtCs2_4core6option13unwrap_failed";

fn call(callee: &str) -> String {
    format!("\tcall.uni {callee}, ();")
}

#[test]
fn names_the_cause_of_a_panic() {
    let ptx = module(&call(REM_BY_ZERO)) + &function(REM_BY_ZERO, &call(PANIC_FMT));
    assert_eq!(
        message(&ptx),
        "in `k`: a path that panics: `%` by a variable: use `checked_rem`, or `if n == 0 { return .. }` before it; it \
         calls core::panicking::panic_const::panic_const_rem_by_zero (line 8 of the PTX)"
    );
    let legacy = "_ZN4core9panicking18panic_bounds_check17h0123456789abcdefE";
    assert!(message(&module(&call(legacy))).contains("an index that may be out of bounds: use `get`"));
}

#[test]
fn names_the_function_that_unwraps() {
    let unwrap_failed = function(UNWRAP_FAILED, &call("_RNvNtCs2_4core9panicking5panic"));
    let helper = function("_RNvCs3_4mine6helper", &(call(UNWRAP_FAILED) + "\n\tret;"));
    let ptx = module(&call("_RNvCs3_4mine6helper")) + &helper + &unwrap_failed;
    assert!(
        message(&ptx).starts_with(
            "in `mine::helper`, which kernel `k` calls: a path that panics: `unwrap` or `expect` of an `Option`"
        ),
        "{}",
        message(&ptx)
    );
}

// A function of `core` that may return is not panic machinery. The report names it as the panic site.
#[test]
fn names_functions_of_core_that_may_panic() {
    let sort = function("_RNvNtCs2_4core5slice4sort", &(call(PANIC_FMT) + "\n\tret;"));
    let ptx = module(&call("_RNvNtCs2_4core5slice4sort")) + &sort;
    assert!(
        message(&ptx).starts_with("in `core::slice::sort`, which kernel `k` calls: "),
        "{}",
        message(&ptx)
    );
}

#[test]
fn checks_kernels_with_panic_in_their_names() {
    for name in ["panics", "no_panic_reduce", "panicking"] {
        let ptx = module(&call(REM_BY_ZERO)).replace(".entry k(", &format!(".entry {name}("));
        assert!(message(&ptx).starts_with(&format!("in `{name}`: a path that panics: ")));
    }
}

#[test]
fn accepts_calls_of_user_functions_with_panic_in_their_names() {
    for name in ["panic_free", "_RNvCs3_4mine10panic_free", "_RNvNtNtCs3_4mine4core9panicking5panic"] {
        check(&(module(&call(name)) + &function(name, "\tret;")), &Target::default()).unwrap();
    }
}

#[test]
fn names_the_line_of_the_source() {
    let files = "\t.file\t1 \"/app/k/src/lib.rs\"\n\t.file\t2 \"/usr/lib/library/core/src/option.rs\"\n";
    let at = |location: &str| {
        message(&(module(&format!("\t.loc\t1 7 0\n\t.loc\t{location}\n{}", call(REM_BY_ZERO))) + files))
    };
    assert!(at("1 10 38").starts_with("/app/k/src/lib.rs:10:38: in `k`: "), "{}", at("1 10 38"));
    assert!(at("2 999 5").starts_with("/app/k/src/lib.rs:7: in `k`: "), "{}", at("2 999 5"));
}

#[test]
fn rejects_functions_that_no_gpu_has() {
    let with = |declaration: &str| format!("{declaration}\n;\n{}", module(""));
    assert_eq!(
        message(&with(".extern .func (.param .b32 r) memcmp\n(.param .b64 a)")),
        "`memcmp` does not exist on a GPU: compare slices element by element, not with `==` (line 1 of the PTX)"
    );
    assert!(message(&with(".extern .func llvm.nvvm.new()")).contains("no such intrinsic"));
    check(&with(".extern .func (.param .b32 r) vprintf\n()"), &Target::default()).unwrap();
    check(&with(".extern .shared .align 16 .b8 shared[]"), &Target::default()).unwrap();
}

#[test]
fn names_the_callers_of_functions_that_no_gpu_has() {
    let memcmp = ".extern .func (.param .b32 r) memcmp\n()\n;\n";
    let helper =
        function("_RNvCs3_4mine6helper", "\tcall.uni (r), memcmp, ();\n\tcall.uni (r), memcmp, ();\n\tret;");
    let ptx = format!("{memcmp}{}{helper}", module(&call("_RNvCs3_4mine6helper")));
    let expected =
        "in `mine::helper`, which kernel `k` calls: `memcmp` does not exist on a GPU: compare slices";
    assert!(message(&ptx).starts_with(expected), "{}", message(&ptx));
}

#[test]
fn checks_version_target_and_kernels() {
    let good = module("");
    assert_eq!(rules(&good.replace("8.6", "7.8")), [Rule::Isa(7, 8)]);
    assert_eq!(rules(&good.replace("sm_75", "sm_80")), [Rule::Arch("sm_80".into())]);
    assert_eq!(rules(".version 8.6\n.target sm_75\n"), [Rule::NoEntry]);
    assert_eq!(rules(""), [Rule::Arch(String::new()), Rule::Isa(0, 0), Rule::NoEntry]);
    let newer = check(&good.replace("8.6", "8.7"), &Target::default()).unwrap();
    assert_eq!(newer.isa, (8, 7));
    let old = Target { arch: "sm_75".into(), isa: (7, 8) };
    assert!(check(&good.replace("8.6", "7.8"), &old).is_err(), "doorbells need 8.2 whatever is asked for");
}
