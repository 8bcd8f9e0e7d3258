//! What tests of windows have in common.

use std::sync::Arc;

use everfold_protocol::JobId;
use everfold_runtime::{
    memory::window::Windows,
    transport::{
        control::Listener,
        handshake::{self, Key},
        tcp,
    },
};

/// Serves `windows` over TCP; tells where.
pub async fn serve(windows: &Arc<Windows>, key: Key, job: JobId) -> String {
    let listener = Listener::bind(&"tcp:127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.tcp_address().unwrap().unwrap().to_string();
    let windows = windows.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let windows = windows.clone();
            tokio::spawn(async move {
                let (_, seals) = handshake::accept(&mut stream, &key, job).await.unwrap();
                tcp::serve(stream, seals, windows).await
            });
        }
    });
    address
}
