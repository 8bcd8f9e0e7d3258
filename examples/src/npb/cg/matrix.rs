//! The matrix of CG.

use super::Class;
use crate::npb::random::Generator;
use std::ops::Range;

const SEED: u64 = 314_159_265;
/// Condition number of the random part, inverted.
const RCOND: f64 = 0.1;

/// A sparse symmetric matrix: sums of outer products of sparse random vectors, with a shifted diagonal.
#[derive(Debug)]
pub struct Matrix {
    /// Where each row starts among the entries, and the end of the last.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

impl Matrix {
    /// The matrix of a class. The whole stream is drawn: it has rejections, so no part of it can be skipped.
    pub fn of(class: Class) -> Self {
        let order = class.order();
        let mut generator = Generator::new(SEED);
        generator.draw();
        let ratio = RCOND.powf(1.0 / order as f64);
        let mut size = 1.0;
        let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); order];
        for row in 0..order {
            let vector = sparse_vector(&mut generator, order, class.nonzeros(), row);
            for &(column, right) in &vector {
                let scaled = size * right;
                for &(row, left) in &vector {
                    rows[row as usize].push((column, left * scaled));
                }
            }
            size *= ratio;
        }
        for (index, row) in rows.iter_mut().enumerate() {
            row.push((index as u32, RCOND - class.shift()));
        }
        Self::compressed(rows)
    }

    /// Adds up what each row has in one column, in the order in which it came.
    fn compressed(rows: Vec<Vec<(u32, f64)>>) -> Self {
        let mut matrix = Self { starts: vec![0], columns: Vec::new(), values: Vec::new() };
        for mut row in rows {
            row.sort_by_key(|(column, _)| *column);
            for same in row.chunk_by(|a, b| a.0 == b.0) {
                matrix.columns.push(same[0].0);
                matrix.values.push(same.iter().map(|(_, value)| value).sum());
            }
            matrix.starts.push(matrix.columns.len());
        }
        matrix
    }

    /// Number of rows.
    pub fn order(&self) -> usize {
        self.starts.len() - 1
    }

    /// Entries that are stored.
    pub fn nonzeros(&self) -> usize {
        self.values.len()
    }

    /// These rows of the product with `vector`.
    pub fn multiply(&self, rows: Range<u64>, vector: &[f64]) -> Vec<f64> {
        let row = |row: u64| {
            let entries = self.starts[row as usize]..self.starts[row as usize + 1];
            let pairs = self.columns[entries.clone()].iter().zip(&self.values[entries]);
            pairs.map(|(column, value)| value * vector[*column as usize]).sum()
        };
        rows.map(row).collect()
    }
}

/// A vector with `nonzeros` random entries, and 0.5 at `row`.
fn sparse_vector(generator: &mut Generator, order: usize, nonzeros: usize, row: usize) -> Vec<(u32, f64)> {
    let places = order.next_power_of_two() as f64;
    let mut vector: Vec<(u32, f64)> = Vec::with_capacity(nonzeros + 1);
    while vector.len() < nonzeros {
        let (value, place) = (generator.draw(), (places * generator.draw()) as usize);
        if place < order && vector.iter().all(|(taken, _)| *taken as usize != place) {
            vector.push((place as u32, value));
        }
    }
    match vector.iter_mut().find(|(place, _)| *place as usize == row) {
        Some((_, value)) => *value = 0.5,
        None => vector.push((row as u32, 0.5)),
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_as_many_entries_as_it_should() {
        for (class, nonzeros) in [(Class::S, 78_148), (Class::W, 508_402)] {
            let matrix = Matrix::of(class);
            assert_eq!((matrix.order(), matrix.nonzeros()), (class.order(), nonzeros));
        }
    }

    #[test]
    fn rows_of_a_product_do_not_depend_on_who_computes_them() {
        let matrix = Matrix::of(Class::S);
        let vector: Vec<f64> = (0..matrix.order()).map(|index| 1.0 / (index + 1) as f64).collect();
        let whole = matrix.multiply(0..matrix.order() as u64, &vector);
        let parts = [0..1, 1..700, 700..1400].map(|rows| matrix.multiply(rows, &vector)).concat();
        assert_eq!(whole, parts);
    }
}
