//! The `everfold` command.

use std::process::ExitCode;

use everfold::launch::Components;

fn main() -> ExitCode {
    everfold_cli::main_with(Components::new())
}
