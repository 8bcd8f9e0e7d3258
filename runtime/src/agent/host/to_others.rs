//! Serves other hosts.

use std::{io, sync::Arc, time::Duration};

use everfold_protocol::AgentId;

use super::AgentConfig;
use crate::{
    agent::remains::Remains,
    locating::{self, Locator},
    replica::holding::{self, Replicas},
    transport::{control::Listener, handshake::Purpose, lobby::Lobby, tcp},
};

/// Processes of one host for which connections wait that have proved nothing yet.
const RANKS_EXPECTED: u32 = 1024;

/// What an agent serves to other hosts.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) id: AgentId,
    pub(super) config: Arc<AgentConfig>,
    pub(super) remains: Arc<Remains>,
    pub(super) replicas: Arc<Replicas>,
}

/// Serves what processes of this host have left, and replicas of ranks of other hosts, and lets other nodes talk
/// to the one here.
pub(super) async fn serve(listener: Listener, server: Server, silence_max: Duration, locator: Locator) {
    let lobby = Lobby::for_job(RANKS_EXPECTED);
    loop {
        let (mut stream, guest) = lobby.next(&listener).await;
        let (Server { id, config, remains, replicas }, locator) = (server.clone(), locator.clone());
        tokio::spawn(async move {
            let (hello, seals) = match guest.prove(&mut stream, &config.key, config.job).await {
                Ok(proved) => proved,
                Err(error) => return tracing::debug!(%error, "dropped a connection"),
            };
            let served = async {
                stream.bound_silence(silence_max)?;
                match hello.purpose {
                    Purpose::Remains(process) => tcp::serve(stream, seals, remains.of(process)).await,
                    Purpose::Replica(to) if to == id => {
                        holding::serve(&replicas, hello.process, stream, seals).await
                    }
                    Purpose::Locate(to) if to == id => locating::listen(stream, seals, locator).await,
                    Purpose::Link(to) if to == id => locating::show_link(stream).await,
                    purpose => Err(io::Error::other(format!("it was led astray: {purpose:?}")).into()),
                }
            };
            if let Err(error) = served.await {
                tracing::debug!(%error, "dropped a connection");
            }
        });
    }
}
