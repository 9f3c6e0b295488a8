import CCrypto
import CSQLite

/// The libraries of Storing that this process runs with, as they tell it themselves.
package enum StoringLibraries {
  package static var sqlite: String { String(cString: sqlite3_libversion()) }
  package static var libcrypto: String { String(cString: OpenSSL_version(OPENSSL_VERSION_STRING)) }
}
