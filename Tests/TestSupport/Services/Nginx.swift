import Base
import Glibc

/// How an nginx of the tests is set up.
package struct NginxSettings: Sendable {
  /// What it answers with.
  package enum Content: Sendable {
    /// The files of a folder.
    case folder(String)
    /// What this origin answers, faults and all: its way to TLS and HTTP/2. A fault before the headers shows as 502, a
    /// stall as a stall.
    case origin(Origin)
  }

  /// What it answers with.
  package var content: Content
  /// The certificate to speak TLS with, nil for plain HTTP.
  package var certificate: TestCertificate?
  /// Whether HTTP/2 is offered (over TLS).
  package var http2 = true
  /// Bytes a second for each connection (each stream of HTTP/2), nil for no bound.
  package var limitRate: Int?
  /// More lines for the server block.
  package var lines = ""
  /// The line at whose far end it is, nil for loopback.
  package var line: TestLine?
  /// The user whose rights it has when we are root: root itself unless set.
  package var user: TestUser?

  /// Serves `content` over plain HTTP.
  package init(_ content: Content) { self.content = content }

  fileprivate var address: String { line == nil ? "127.0.0.1" : TestLine.serverAddress }
}

/// A real nginx on a free port of 127.0.0.1 or of a line's far end, in a temporary folder of its own. Any thread may
/// call. ``stop()`` must be called; ``withNginx(_:_:)`` does.
package final class Nginx: Sendable {
  /// One line of the access log, written when a response has ended.
  package struct Access: Sendable, Equatable {
    /// The connection's number.
    package let connection: Int
    /// The method.
    package let method: String
    /// The target, as sent.
    package let target: String
    /// `HTTP/1.1`, `HTTP/2.0`.
    package let version: String
    /// The status.
    package let status: Int
    /// Bytes of the body that were sent.
    package let bodyBytes: Int64
    /// The Range field.
    package let range: String?
    /// The Content-Range field of the answer.
    package let contentRange: String?
    /// Seconds from the request's first byte to the answer's last.
    package let seconds: Double
  }

  /// Why it could not be started.
  package struct Failure: Error, CustomStringConvertible {
    /// The message.
    package let description: String
  }

  /// The port it listens at.
  package let port: UInt16
  /// Where its files are: the configuration, the logs.
  package let folder: TemporaryFolder
  private let process: BackgroundProcess
  private let scheme: String
  private let address: String

  /// Whether there is an nginx.
  package static var isInstalled: Bool { Command.exists("nginx") }

  /// Starts one and waits until it listens.
  package init(_ settings: NginxSettings) throws {
    folder = try TemporaryFolder(open: true)
    if let user = settings.user, chown(folder.path, user.userID, user.groupID) != 0 { throw Errno.current }
    scheme = settings.certificate == nil ? "http" : "https"
    address = settings.address
    var attempt = 0
    let numberFile = folder.file("nginx.pid")
    while true {
      attempt += 1
      let port = try freePort()
      try folder.write(Self.configuration(settings, folder: folder, port: port), to: "nginx.conf")
      let command = ["nginx", "-p", folder.path, "-c", folder.file("nginx.conf"), "-e", folder.file("error.log")]
      let process = try BackgroundProcess((settings.line?.inServer ?? []) + command, user: settings.user)
      // It writes its process's number once it listens.
      _ = eventually(timeout: 10) { !process.isRunning || !text(of: numberFile).isEmpty }
      if process.isRunning {
        self.port = port
        self.process = process
        return
      }
      // The port may have been taken by someone else in between.
      let message = process.standardErrorSoFar + text(of: folder.file("error.log"))
      if attempt == 5 || !message.contains("Address already in use") {
        try folder.remove()
        throw Failure(description: "nginx does not start: \(message)")
      }
    }
  }

  /// `http://ADDRESS:port` (or https) and `path`, which begins with a slash.
  package func url(_ path: String = "") -> String { "\(scheme)://\(address):\(port)\(path)" }

  /// Kills it and its workers, waits for them, and removes its folder.
  package func stop() {
    process.terminate(grace: 2)
    do { try folder.remove() } catch { Log.warning("\(error)") }
  }

  /// Ends it at once as a crash would, keeping its folder: the origin is gone. ``stop()`` is still to be called.
  package func kill() { process.terminate(grace: 0) }

  /// The access log so far; a response that is not at its end is not in it.
  package var accesses: [Access] {
    text(of: folder.file("access.log")).split(separator: "\n").compactMap { line in
      let fields = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
      guard fields.count == 9, let connection = Int(fields[0]), let status = Int(fields[4]),
        let bytes = Int64(fields[5]), let seconds = Double(fields[8])
      else { return nil }
      return Access(
        connection: connection, method: fields[1], target: fields[2], version: fields[3], status: status,
        bodyBytes: bytes, range: fields[6] == "-" ? nil : fields[6], contentRange: fields[7] == "-" ? nil : fields[7],
        seconds: seconds)
    }
  }

  private static func configuration(_ settings: NginxSettings, folder: TemporaryFolder, port: UInt16) -> String {
    var server = "listen \(settings.address):\(port)"
    if let certificate = settings.certificate {
      // As a parameter of listen, which every nginx knows; `http2 on` came with 1.25.
      server += " ssl\(settings.http2 ? " http2" : "");\n    ssl_certificate \(certificate.certificate)"
      server += ";\n    ssl_certificate_key \(certificate.key)"
    }
    server += ";\n"
    if let rate = settings.limitRate { server += "    limit_rate \(rate);\n" }
    switch settings.content {
    case .folder(let path): server += "    root \"\(path)\";\n"
    case .origin(let origin):
      server += """
            location / {
              proxy_pass \(origin.url());
              proxy_http_version 1.1;
              proxy_set_header Host $host;
              proxy_set_header Connection "";
              proxy_buffering off;
              proxy_read_timeout 1h;
            }

        """
    }
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
      .map { "  \($0)_temp_path \(folder.path)/\($0);" }.joined(separator: "\n")
    let user = geteuid() == 0 && settings.user == nil ? "user root;" : ""
    return """
      \(user)
      daemon off;
      worker_processes 1;
      pid \(folder.path)/nginx.pid;
      events { worker_connections 2048; }
      http {
      \(temporary)
        types {
          video/mp4 mp4; video/x-matroska mkv; audio/mpeg mp3; audio/flac flac; audio/ogg ogg; text/plain txt;
        }
        default_type application/octet-stream;
        log_format test '$connection\\t$request_method\\t$request_uri\\t$server_protocol\\t$status\\t$body_bytes_sent\\t'
                        '$http_range\\t$sent_http_content_range\\t$request_time';
        access_log \(folder.path)/access.log test;
        keepalive_requests 100000;
        sendfile on;
        tcp_nodelay on;
        server {
          \(server)
          \(settings.lines)
        }
      }

      """
  }
}

/// Lends an nginx and stops it afterwards.
package func withNginx<Result>(_ settings: NginxSettings, _ body: (Nginx) throws -> Result) throws -> Result {
  let nginx = try Nginx(settings)
  defer { nginx.stop() }
  return try body(nginx)
}

/// As the one above, for a body that suspends.
package func withNginx<Result>(
  _ settings: NginxSettings, isolation: isolated (any Actor)? = #isolation, _ body: (Nginx) async throws -> Result
) async throws -> Result {
  let nginx = try Nginx(settings)
  defer { nginx.stop() }
  return try await body(nginx)
}
