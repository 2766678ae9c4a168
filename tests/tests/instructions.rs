//! Guest instructions, the kernel's included, of what the shipped agent does in the VM: held by
//! `tests/budgets/instructions`. `MOTE_RECORD=1` writes it.
//!
//! docs/cost.md counts the agent's own in user mode, to the last one. It would not see an agent that makes the kernel
//! work: one that is woken twice for each event, or maps a buffer for each record.

use mote_tests::bench::quiet::counted;
use mote_tests::column::Column;
use mote_tests::cost::budget::Budget;
use mote_tests::cost::{ALWAYS, Row};

/// A transfer's instructions depend on how it is cut into pieces, which a busy machine changes by 15 %; wake-ups are
/// few, and one more now and then is chance, which is 5 % of an idle minute.
const BUDGET: Budget = Budget {
    file: "instructions",
    tolerance: |name, _| {
        let varies = ["MiB", "wake-ups", "idle"].iter().any(|word| name.contains(word));
        if varies { 25 } else { 5 }
    },
};

#[test]
fn nothing_takes_more_instructions_than_the_budget_says() {
    let row = |(name, cost)| {
        println!("{name}: {cost}");
        Row { name, note: "", cost: vec![(1, cost)], held: ALWAYS }
    };
    let rows: Vec<_> = counted::all(Column::MoteLxd).into_iter().map(row).collect();
    BUDGET.hold(&rows);
}
