//! How far a peer's certificate is judged: not at all, its chain, or its chain and name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_name, WebPkiServerVerifier};
use rustls::crypto::{
    verify_tls12_signature, verify_tls13_signature, CryptoProvider, WebPkiSupportedAlgorithms,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    SignatureScheme,
};

use super::der::{may_constrain_names, Outline};

/// Offered beside the provider's own where any certificate will do, so that servers with such keys answer.
const UNCHECKED: [SignatureScheme; 2] = [
    SignatureScheme::ECDSA_NISTP521_SHA512,
    SignatureScheme::ED448,
];

type CheckSignature = fn(
    &[u8],
    &CertificateDer<'_>,
    &DigitallySignedStruct,
    &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error>;

/// Judges a server's certificate and the signature of its handshake.
///
/// The signature is checked where nothing else is, too: channel binding rests on it. Only a key that the provider
/// cannot use at all passes unchecked, and only where any certificate would do.
#[derive(Debug)]
pub struct ServerJudge {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are trusted as they are, so that a self-signed one can be its own authority.
    trusted: Vec<CertificateDer<'static>>,
    /// Some trusted authority may vouch for some names only; that binds alternative names alone.
    constrained: bool,
    name: bool,
}

impl ServerJudge {
    /// `roots` None: any certificate will do.
    pub fn new(
        provider: Arc<CryptoProvider>,
        roots: Option<(RootCertStore, Vec<CertificateDer<'static>>)>,
        name: bool,
    ) -> Result<ServerJudge, String> {
        let Some((store, trusted)) = roots else {
            return Ok(ServerJudge {
                provider,
                chain: None,
                trusted: Vec::new(),
                constrained: false,
                name: false,
            });
        };
        let constrained = store
            .roots
            .iter()
            .any(|root| root.name_constraints.is_some());
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone())
            .build()
            .map_err(|error| error.to_string())?;
        Ok(ServerJudge {
            provider,
            chain: Some(chain),
            trusted,
            constrained,
            name,
        })
    }

    fn check_signature(
        &self,
        check: CheckSignature,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let Some(outline) = Outline::of(cert) else {
            return check(message, cert, dss, algorithms);
        };
        if self.chain.is_none() && outline.key_is_beyond_us() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        match outline.dressed_as_version_3() {
            Some(readable) => check(message, &readable, dss, algorithms),
            None => check(message, cert, dss, algorithms),
        }
    }
}

/// The name of a certificate that is trusted as it is, so that no authority's constraints bear on it.
fn judge_name(end_entity: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    let outline = Outline::of(end_entity);
    if outline.is_some_and(|outline| outline.is_named_by_common_name(name)) {
        return Ok(());
    }
    verify_server_name(&ParsedCertificate::try_from(end_entity)?, name)
}

impl ServerCertVerifier for ServerJudge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.trusted.iter().any(|known| known == end_entity) {
            if self.name {
                judge_name(end_entity, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is judged last, after the chain has been found good.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name
                || !self.constrained
                    && !intermediates.iter().any(|each| may_constrain_names(each))
                    && Outline::of(end_entity)
                        .is_some_and(|outline| outline.is_named_by_common_name(server_name)) =>
            {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(verify_tls12_signature, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(verify_tls13_signature, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self
            .provider
            .signature_verification_algorithms
            .supported_schemes();
        if self.chain.is_none() {
            schemes.extend(UNCHECKED);
        }
        schemes
    }
}

/// Asks clients for a certificate and takes any, or none.
#[derive(Debug)]
pub struct AnyClient {
    pub provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
