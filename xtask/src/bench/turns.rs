//! Contenders take turns, so that other load on the machine affects all of them.

use anyhow::Result;

use super::table::Figures;

/// The indices of contenders, in the order of their turns in a round. Each round begins with another contender, so that
/// the same one is not always measured after a busy one.
pub(super) fn turns(round: usize, contenders: usize) -> impl Iterator<Item = usize> {
    (0..contenders).map(move |turn| (round + turn) % contenders)
}

/// The figures of all rounds for each contender. `measure` measures the contender of an index.
pub(super) fn measure_in_turns(
    rounds: usize,
    names: &[&str],
    measure: impl Fn(usize) -> Result<Figures>,
) -> Result<Vec<Vec<Figures>>> {
    let mut taken = vec![Vec::new(); names.len()];
    for round in 0..rounds {
        for index in turns(round, names.len()) {
            let figures = measure(index)?;
            println!("{:<12} {}", names[index], figures.line());
            taken[index].push(figures);
        }
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_contender() {
        let rounds: Vec<Vec<usize>> = (0..4).map(|round| turns(round, 3).collect()).collect();
        assert_eq!(rounds, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }
}
