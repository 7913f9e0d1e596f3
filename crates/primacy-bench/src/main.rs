//! `primacy-bench`: what primacy costs, and how fast it fails over.

fn main() -> anyhow::Result<()> {
    primacy_bench::main()
}
