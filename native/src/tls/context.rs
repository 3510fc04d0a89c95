//! TLS contexts from settings.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{ring, CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, Error, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::ciphers;
use super::der::Outline;
use super::verify::{AnyClient, ServerJudge};

const ALPN: &[u8] = b"postgresql";
const KEY_KINDS: &str = "the key file holds no key that can be used: RSA of 2048 to 4096 bits, ECDSA on P-256 or P-384 \
    and Ed25519 are, P-521 is not";

/// TLS material and policy; PEM bytes, not paths.
#[derive(Clone, Debug, Default)]
pub struct TlsSettings {
    pub certificate_pem: Vec<u8>,
    pub key_pem: Vec<u8>,
    pub ca_pem: Vec<u8>,
    pub versions: Vec<String>,
    pub ciphers: String,
    pub tls13_ciphers: String,
    /// An elliptic curve by name; empty is the usual choice.
    pub curve: String,
    pub request_certificate: bool,
    pub require_certificate: bool,
    pub verify_chain: bool,
    pub verify_name: bool,
}

/// What a handshake starts from.
#[derive(Clone)]
pub enum TlsContext {
    Server(Arc<ServerConfig>),
    Client(Arc<ClientConfig>),
}

impl TlsContext {
    /// For connections we accepted.
    pub fn server(settings: &TlsSettings) -> Result<TlsContext, String> {
        let provider = provider(settings)?;
        let pair = pair(settings, &provider)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions(settings)?)
            .map_err(|error| error.to_string())?;
        let builder = match client_verifier(settings, provider)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(pair);
        config.alpn_protocols = vec![ALPN.to_vec()];
        // PostgreSQL's clients never resume a session, so tickets would be waste.
        config.send_tls13_tickets = 0;
        Ok(TlsContext::Server(Arc::new(config)))
    }

    /// For connections we made.
    pub fn client(settings: &TlsSettings) -> Result<TlsContext, String> {
        let provider = provider(settings)?;
        let roots = if settings.verify_chain || settings.verify_name {
            Some(roots(&settings.ca_pem)?)
        } else {
            None
        };
        let judge = ServerJudge::new(provider.clone(), roots, settings.verify_name)?;
        let pair = match settings.certificate_pem.as_slice() {
            [] => None,
            _ => Some(pair(settings, &provider)?),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions(settings)?)
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge));
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_cert_resolver(pair),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(TlsContext::Client(Arc::new(config)))
    }
}

fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, String> {
    let cipher_suites = ciphers::select(&settings.ciphers, &settings.tls13_ciphers)?;
    let usual = ring::default_provider();
    let kx_groups = match settings.curve.as_str() {
        "" => usual.kx_groups,
        name => vec![curve(name).ok_or_else(|| format!("the curve {name} is not available"))?],
    };
    Ok(Arc::new(CryptoProvider {
        cipher_suites,
        kx_groups,
        ..usual
    }))
}

fn curve(name: &str) -> Option<&'static dyn SupportedKxGroup> {
    match name {
        "X25519" => Some(ring::kx_group::X25519),
        "prime256v1" => Some(ring::kx_group::SECP256R1),
        "secp384r1" => Some(ring::kx_group::SECP384R1),
        _ => None,
    }
}

fn versions(settings: &TlsSettings) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut found = Vec::new();
    for name in &settings.versions {
        match name.to_ascii_lowercase().as_str() {
            "tlsv1.3" => found.push(&rustls::version::TLS13),
            "tlsv1.2" => found.push(&rustls::version::TLS12),
            "tlsv1.0" | "tlsv1.1" | "tlsv1" => {
                return Err(format!(
                    "protocol {name} is not available: it is insecure, use tlsv1.2 or tlsv1.3"
                ))
            }
            _ => return Err(format!("unknown TLS protocol {name}")),
        }
    }
    if found.is_empty() {
        return Err("no TLS protocol is allowed".into());
    }
    Ok(found)
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(list) if !list.is_empty() => Ok(list),
        Ok(_) => Err(format!("the {what} file holds no certificate")),
        Err(error) => Err(format!("the {what} file is not readable as PEM: {error}")),
    }
}

/// Our certificate with its key, which must belong together.
fn pair(
    settings: &TlsSettings,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, String> {
    let chain = certificates(&settings.certificate_pem, "certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&settings.key_pem)
        .map_err(|error| format!("the key file is not readable as PEM: {error}"))?;
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|_| KEY_KINDS)?;
    // A certificate of version 1 is served as it is; only its key is read from what rustls can parse.
    let readable = Outline::of(&chain[0]).and_then(|outline| outline.dressed_as_version_3());
    let first = readable.unwrap_or_else(|| chain[0].clone());
    CertifiedKey::new(vec![first], key.clone())
        .keys_match()
        .map_err(|error| match error {
            Error::InconsistentKeys(_) => "the key does not belong to the certificate".into(),
            other => format!("certificate and key: {other}"),
        })?;
    Ok(Arc::new(CertifiedKey::new(chain, key).into()))
}

/// Trusted authorities, and the same certificates as they are.
fn roots(ca_pem: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let mut store = RootCertStore::empty();
    if ca_pem.is_empty() {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if store.is_empty() {
            return Err("the system has no store of certificate authorities".into());
        }
        return Ok((store, Vec::new()));
    }
    let list = certificates(ca_pem, "CA")?;
    for certificate in &list {
        store
            .add(certificate.clone())
            .map_err(|error| format!("the CA file: {error}"))?;
    }
    Ok((store, list))
}

fn client_verifier(
    settings: &TlsSettings,
    provider: Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    if !settings.require_certificate && !settings.request_certificate {
        return Ok(None);
    }
    if settings.ca_pem.is_empty() || !(settings.require_certificate || settings.verify_chain) {
        if settings.require_certificate {
            return Err("client certificates are required but there is no CA file".into());
        }
        return Ok(Some(Arc::new(AnyClient { provider })));
    }
    let (store, _) = roots(&settings.ca_pem)?;
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider);
    if !settings.require_certificate {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map(Some).map_err(|error| error.to_string())
}
