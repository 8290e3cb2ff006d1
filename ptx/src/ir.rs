//! Rewrites LLVM assembly for older and newer releases of LLVM than the compiler's.
//!
//! Triton and other compilers bundle their own LLVM. Each reads the text of older releases, and that of newer ones
//! as long as it knows the attributes and intrinsics in it. Bitcode would not do: its reader adds the attributes of
//! intrinsics again.

/// Attributes that optimizers can do without, and that LLVM before 22.1 does not know.
const RECENT_ATTRIBUTES: [&str; 3] = ["nocreateundeforpoison ", ", target_mem0: none", ", target_mem1: none"];

/// An intrinsic that LLVM 22.0 lacks: a barrier of the block that returns whether any thread passed `true`.
const BARRIER: &str = "@llvm.nvvm.barrier.cta.red.or.all";

/// The same as an instruction, for barrier 0. It does not require that the lanes of a warp are converged, unlike the older
/// intrinsic.
const OLDER_BARRIER: &str = "\
define internal i1 @rushmem_barrier_or(i32 %barrier, i1 %vote) alwaysinline convergent nounwind {
  %wide = zext i1 %vote to i32
  %any = call i32 asm sideeffect \"{ .reg .pred p, q; setp.ne.u32 p, $1, 0; barrier.red.or.pred q, 0, p; \
selp.u32 $0, 1, 0, q; }\", \"=r,r,~{memory}\"(i32 %wide) convergent nounwind
  %is_any = icmp ne i32 %any, 0
  ret i1 %is_any
}
";

/// How the assembly text of one-way fences starts.
const ONE_WAY_FENCES: [&str; 2] = ["\"fence.release.", "\"fence.acquire."];

/// Returns the module `text` without what only the newest releases of LLVM can read, and without the GPU for which it was
/// compiled. Unless the GPU `is_hopper` or newer, two-way fences replace one-way ones.
///
/// Shared variables become globals, which are merged if a compiler links the module twice, as CuTe DSL does. In
/// module-level assembly, their definitions would collide.
pub(crate) fn portable(text: &str, is_hopper: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut shared = Vec::new();
    for line in text.lines() {
        if let Some((name, definition)) = shared_variable(line) {
            out += &definition;
            shared.push(name);
        } else if line.starts_with("declare") && line.contains(BARRIER) {
            out += OLDER_BARRIER;
        } else if line.starts_with("attributes ") {
            let without = |line: String, recent: &&str| line.replace(recent, "");
            let line = RECENT_ATTRIBUTES.iter().fold(line.to_owned(), without);
            // The GPU comes last.
            out += &line.split_once(" \"target-cpu\"").map_or(line.clone(), |(kept, _)| format!("{kept} }}"));
        } else {
            let mut line = line.replace(BARRIER, "@rushmem_barrier_or");
            if !is_hopper {
                line =
                    ONE_WAY_FENCES.iter().fold(line, |line, fence| line.replace(fence, "\"fence.acq_rel."));
            }
            out += &line;
        }
        out.push('\n');
    }
    // LLVM does not see their uses, which are all in inline assembly.
    let used = shared.iter().map(|name| format!("ptr addrspacecast (ptr addrspace(3) @{name} to ptr)"));
    let (count, used) = (shared.len(), used.collect::<Vec<_>>().join(", "));
    if count > 0 {
        out += &format!(
            "@llvm.compiler.used = appending global [{count} x ptr] [{used}], section \"llvm.metadata\"\n"
        );
    }
    out
}

/// Returns the name of the shared variable that a line of module-level assembly declares or defines, and the global that
/// does the same.
fn shared_variable(line: &str) -> Option<(&str, String)> {
    let directive = line.strip_prefix("module asm \"")?.strip_suffix(";\"")?;
    let (linkage, rest, value) = match directive.strip_prefix(".extern ") {
        Some(rest) => ("external", rest, ""),
        None => ("linkonce_odr", directive, " undef"),
    };
    let (align, rest) = rest.strip_prefix(".shared .align ")?.split_once(" .b")?;
    let (bits, array) = rest.split_once(' ')?;
    let (name, length) = array.strip_suffix(']')?.split_once('[')?;
    let length = if length.is_empty() { "0" } else { length };
    Some((
        name,
        format!("@{name} = {linkage} addrspace(3) global [{length} x i{bits}]{value}, align {align}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::portable;

    #[test]
    fn recent_attributes_and_intrinsics_are_replaced() {
        let text = "define i1 @f(i1 %v) {\n  %r = tail call i1 @llvm.nvvm.barrier.cta.red.or.all(i32 0, i1 %v) #1\n  \
                    call void asm sideeffect \"fence.acquire.sys;\", \"~{memory}\"()\n}\n\
                    declare i1 @llvm.nvvm.barrier.cta.red.or.all(i32, i1) #1\n\
                    attributes #1 = { nocallback nocreateundeforpoison nofree memory(read, target_mem0: none, target_mem1: none) }\n\
                    attributes #2 = { cold \"target-cpu\"=\"sm_75\" \"target-features\"=\"+ptx86\" }\n";
        let (newer, older) = (portable(text, true), portable(text, false));
        assert!(newer.contains("%r = tail call i1 @rushmem_barrier_or(i32 0, i1 %v) #1\n"), "{newer}");
        assert!(newer.contains("attributes #1 = { nocallback nofree memory(read) }\n"), "{newer}");
        assert!(newer.contains("attributes #2 = { cold }\n"), "{newer}");
        assert!(
            newer.contains("define internal i1 @rushmem_barrier_or") && !newer.contains("cta.red"),
            "{newer}"
        );
        assert_eq!(older, newer.replace("fence.acquire.sys", "fence.acq_rel.sys"));
    }

    #[test]
    fn shared_variables_become_globals() {
        let text = "module asm \".shared .align 16 .b64 words[2];\"\nmodule asm \".extern .shared .align 1024 .b8 rest[];\"\n";
        let wanted = "@words = linkonce_odr addrspace(3) global [2 x i64] undef, align 16\n\
                      @rest = external addrspace(3) global [0 x i8], align 1024\n\
                      @llvm.compiler.used = appending global [2 x ptr] [ptr addrspacecast (ptr addrspace(3) @words to ptr), \
                      ptr addrspacecast (ptr addrspace(3) @rest to ptr)], section \"llvm.metadata\"\n";
        assert_eq!(portable(text, true), wanted);
    }
}
