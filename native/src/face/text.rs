//! Text of any bytes between Python and the core: what is not UTF-8 stands in Python's strings as lone surrogates.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

const ESCAPED: (&str, &str) = ("utf-8", "surrogateescape");

/// The bytes a Python string stands for; clients and servers choose them, so they need not be UTF-8.
pub struct Text(Vec<u8>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'py> for Text {
    fn extract_bound(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let text = value.downcast::<PyString>()?;
        match text.to_str() {
            Ok(text) => Ok(Text(text.as_bytes().into())),
            Err(_) => Ok(Text(text.call_method1("encode", ESCAPED)?.extract()?)),
        }
    }
}

/// The Python string of these bytes.
pub fn text<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(PyString::new(py, text).into_any()),
        Err(_) => PyBytes::new(py, bytes).call_method1("decode", ESCAPED),
    }
}
