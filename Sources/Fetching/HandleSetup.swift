import CCurl

/// What every easy handle gets, whatever its request: the options, the certificates, the logins, the TLS sessions.
///
/// The loop's thread alone uses it.
final class HandleSetup {
  let options: TransferOptions
  /// The limits of now.
  var rates: TransferRates
  let trust: TrustStore
  let sessions = TLSSessions()
  private var netrc: NetrcFile

  /// Reads the files that the options name.
  init(options: TransferOptions) throws(FetchError) {
    self.options = options
    rates = options.rates
    trust = try TrustStore(file: options.certificateFile)
    netrc = try NetrcFile(named: options.netrcFile)
  }

  /// The login for the chain's current URL, nil for none. Requests to an object store are signed instead.
  func login(for chain: RedirectChain) -> WebURL.Credentials? {
    chain.object == nil ? chain.credentials(netrc.logins()) : nil
  }
}

/// The TLS sessions of all handles, so that a new connection resumes one. One thread alone uses it, so it has no locks.
final class TLSSessions {
  /// nil when out of memory: then handshakes take longer, nothing else.
  let share = curl_share_init()

  init() { if let share { _ = ccurl_share(share, CURL_LOCK_DATA_SSL_SESSION) } }

  deinit { if let share { curl_share_cleanup(share) } }
}
