import CCurl

/// What every easy handle is given, whatever it asks for: the options, the certificates, the logins, the TLS sessions.
///
/// On the loop's thread alone.
final class HandleSetup {
  let options: TransferOptions
  let trust: TrustStore
  let sessions = TLSSessions()
  private var netrc: NetrcFile

  /// Reads the files that the options name.
  init(options: TransferOptions) throws(FetchError) {
    self.options = options
    trust = try TrustStore(file: options.certificateFile)
    netrc = try NetrcFile(named: options.netrcFile)
  }

  /// Who asks for the chain's present URL, when that needs a login.
  func login(for chain: RedirectChain) -> WebURL.Credentials? { chain.credentials(netrc.logins()) }
}

/// TLS sessions of all handles, so that a new connection resumes. Used by one thread only, so without locks.
final class TLSSessions {
  /// nil when there is no memory: without it handshakes are longer, no more.
  let share = curl_share_init()

  init() { if let share { _ = ccurl_share(share, CURL_LOCK_DATA_SSL_SESSION) } }

  deinit { if let share { curl_share_cleanup(share) } }
}
