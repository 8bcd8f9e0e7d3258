//! Logs, for those who ask for them.

use tracing_subscriber::EnvFilter;

/// Shows them on standard error from now on, if `RUST_LOG` asks for any. An application's own subscriber stays.
pub fn show() {
    if std::env::var_os("RUST_LOG").is_some() {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_default_env())
            .with_writer(std::io::stderr)
            .try_init();
    }
}
