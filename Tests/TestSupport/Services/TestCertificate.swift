import Base

/// Certificates of the tests' own, made by the `openssl` command: an authority, and what it signed for a server.
package struct TestCertificate: Sendable {
  /// What is wrong with the server's certificate.
  package enum Kind: Sendable {
    /// Nothing: for localhost, 127.0.0.1 and the far end of a ``TestLine``, signed by the authority.
    case good
    /// For another host.
    case wrongHost
    /// Its time is over.
    case expired
    /// Signed by itself; `authority` is then the certificate, so that trusting it makes it right.
    case selfSigned
  }

  /// The path of the authority's certificate (PEM): what a client has to trust.
  package let authority: String
  /// The path of the server's certificate (PEM).
  package let certificate: String
  /// The path of the server's private key (PEM).
  package let key: String

  /// Makes one in `folder`.
  package init(_ kind: Kind = .good, in folder: TemporaryFolder) throws {
    let base = try folder.makeFolder("certificate-\(kind)")
    certificate = "\(base)/server.pem"
    key = "\(base)/server.key"
    let newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    let names = kind == .wrongHost ? "DNS:elsewhere.test" : "DNS:localhost,IP:127.0.0.1,IP:\(TestLine.serverAddress)"
    if kind == .selfSigned {
      authority = certificate
      try Command.succeed(
        ["openssl", "req", "-x509"] + newKey
          + [
            "-keyout", key, "-out", certificate, "-days", "30", "-subj", "/CN=localhost", "-addext",
            "subjectAltName=\(names)",
          ])
      return
    }
    authority = "\(base)/authority.pem"
    let authorityKey = "\(base)/authority.key"
    let request = "\(base)/server.csr"
    try Command.succeed(
      ["openssl", "req", "-x509"] + newKey
        + ["-keyout", authorityKey, "-out", authority, "-days", "30", "-subj", "/CN=mediafs test authority"])
    try Command.succeed(
      ["openssl", "req", "-new"] + newKey
        + ["-keyout", key, "-out", request, "-subj", kind == .wrongHost ? "/CN=elsewhere.test" : "/CN=localhost"])
    // `openssl ca`, because it alone takes dates: an expired certificate needs both of its own.
    let settings = """
      [ca]
      default_ca = authority
      [authority]
      database = \(base)/index.txt
      rand_serial = yes
      new_certs_dir = \(base)
      default_md = sha256
      policy = any
      x509_extensions = server
      [any]
      commonName = supplied
      [server]
      subjectAltName = \(names)
      """
    let name = base.dropFirst(folder.path.utf8.count + 1)
    try folder.write("", to: "\(name)/index.txt")
    try folder.write(settings, to: "\(name)/ca.conf")
    let dates =
      kind == .expired ? ["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"] : ["-days", "30"]
    try Command.succeed(
      [
        "openssl", "ca", "-batch", "-notext", "-config", "\(base)/ca.conf", "-in", request, "-out", certificate,
        "-cert",
        authority, "-keyfile", authorityKey,
      ] + dates)
  }
}
