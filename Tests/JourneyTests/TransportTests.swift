import Base
import TestSupport
import Testing

/// The whole way with a real web server, over each kind of connection.
@Suite struct TransportTests {
  enum Transport: String, Sendable, CaseIterable {
    case plain = "HTTP/1.1"
    case encrypted = "HTTP/1.1 over TLS"
    case http2 = "HTTP/2"
  }

  @Test(arguments: Traveller.all, Transport.allCases)
  func aJourney(_ traveller: Traveller, _ transport: Transport) throws {
    try withJourney(traveller) { journey in
      let film = MediaFactory.Kind.mp4IndexLast
      let original = try MediaFactory.file(film)
      let folder = try journey.folder.makeFolder("origin")
      let odd = Int64(9 << 20) + 77
      try journey.folder.write(try MediaFactory.bytes(film), to: "origin/film.mp4")
      try journey.folder.write(Pattern.bytes(name: "rest", offset: 0, count: Int(odd)), to: "origin/some data.bin")

      var settings = NginxSettings(.folder(folder))
      settings.limitRate = 3_000_000
      let certificate = transport == .plain ? nil : try TestCertificate(in: journey.folder)
      settings.certificate = certificate
      settings.http2 = transport == .http2
      try withNginx(settings) { nginx in
        let options = certificate.map { ["--cacert", $0.authority] } ?? []
        try journey.list("\(nginx.url("/film.mp4"))\n\(nginx.url("/some%20data.bin"))\n")
        try journey.succeed(try journey.mountCommand(options))
        #expect(try journey.decode(journey.at("film.mp4")) == journey.decode(original))
        // The middle first, then what is around it.
        try journey.shell(
          #"cmp <(tail -c +5000001 "$1" | head -c 70000) <(tail -c +5000001 "$2" | head -c 70000)"#,
          journey.at("some data.bin"), "\(folder)/some data.bin")
        try journey.succeed(["cp", journey.at("some data.bin"), journey.folder.file("copy")])
        try journey.succeed(["cmp", journey.folder.file("copy"), "\(folder)/some data.bin"])
        for name in ["film.mp4", "some data.bin"] {
          try journey.wait(for: "complete", name)
          try journey.succeed(["cmp", journey.kept(name), "\(folder)/\(name)"])
        }

        // A response is logged when it has ended.
        #expect(eventually(timeout: 20) { nginx.accesses.reduce(0) { $0 + $1.bodyBytes } >= odd })
        let accesses = nginx.accesses
        let version = transport == .http2 ? "HTTP/2.0" : "HTTP/1.1"
        #expect(accesses.allSatisfy { $0.version == version }, "\(Set(accesses.map(\.version)))")
        #expect(accesses.allSatisfy { $0.status == 206 && $0.method == "GET" })
        for (target, size) in [("/film.mp4", try #require(sizeOfFile(original))), ("/some%20data.bin", odd)] {
          let sent = accesses.filter { $0.target == target }.reduce(0) { $0 + $1.bodyBytes }
          #expect(sent >= size && Double(sent) <= Double(size) * 1.01, "\(target): \(sent) sent of \(size)")
        }
        if transport == .http2 { #expect(Set(accesses.map(\.connection)).count == 1, "one connection is enough") }
        nginx.kill()
        try journey.succeed(["cmp", journey.at("film.mp4"), original])
        try journey.unmount()
        try journey.succeed(try journey.mountCommand(options))
        try journey.succeed(["cmp", journey.at("some data.bin"), "\(folder)/some data.bin"])
      }
    }
  }

  /// Congestion windows, and other downloads' bytes in a router's queue and in sockets, are not on loopback.
  @Test(.enabled(if: TestLine.isPossible, "\(TestLine.reason)"))
  func seeksBesideADownloadOverRealTCP() throws {
    try withJourney(.root) { journey in
      let folder = try journey.folder.makeFolder("origin")
      for (name, size) in [("film.bin", 8 << 20), ("other.bin", 64 << 20)] {
        try journey.folder.write(Pattern.bytes(name: name, offset: 0, count: size), to: "origin/\(name)")
      }
      try withLine(roundTrip: 0.04, rate: 4e6, queue: 320_000, loss: 0.002) { line in
        let certificate = try TestCertificate(in: journey.folder)
        var settings = NginxSettings(.folder(folder))
        settings.certificate = certificate
        settings.line = line
        try withNginx(settings) { nginx in
          try journey.list("\(nginx.url("/film.bin"))\n\(nginx.url("/other.bin"))\n")
          try journey.succeed(line.inClient + journey.mountCommand(["--cacert", certificate.authority]))
          try journey.mediafs("fetch", journey.at("other.bin"))
          try journey.wait(forStored: 1 << 20, "other.bin")
          for offset in [6_000_001, 1_000_000, 4_096_000, 7_900_000, 2_500_077] {
            try journey.shell(
              #"cmp <(tail -c "+$3" "$1" | head -c 200000) <(tail -c "+$3" "$2" | head -c 200000)"#,
              journey.at("film.bin"), "\(folder)/film.bin", "\(offset)")
          }
          #expect(try journey.status().file("other.bin").state == "partial", "the seeks were beside its download")
          try journey.succeed(["cmp", journey.at("film.bin"), "\(folder)/film.bin"])
          try journey.succeed(["cmp", "-n", "1000000", journey.at("other.bin"), "\(folder)/other.bin"])
          try journey.unmount()
          // Losses may have its requests take connections of their own, as below.
          #expect(nginx.accesses.first?.version == "HTTP/2.0", "\(nginx.accesses)")
          #expect(nginx.accesses.allSatisfy { $0.status == 206 }, "\(nginx.accesses)")
        }
      }
    }
  }

  /// With CUBIC one connection of HTTP/2 keeps its window small where packets are lost, and the kernel counts them.
  @Test(.enabled(if: TestLine.isPossible, "\(TestLine.reason)"))
  func aLineThatLosesPacketsGetsSeveralConnections() throws {
    try withJourney(.root) { journey in
      let folder = try journey.folder.makeFolder("origin")
      try journey.folder.write(Pattern.bytes(name: "film", offset: 0, count: 64 << 20), to: "origin/film.bin")
      try withLine(roundTrip: 0.06, rate: 4e6, queue: 240_000, loss: 0.02, congestion: "cubic") { line in
        let certificate = try TestCertificate(in: journey.folder)
        var settings = NginxSettings(.folder(folder))
        settings.certificate = certificate
        settings.line = line
        try withNginx(settings) { nginx in
          try journey.list("\(nginx.url("/film.bin"))\n")
          try journey.succeed(line.inClient + journey.mountCommand(["--cacert", certificate.authority]))
          try journey.mediafs("fetch", journey.at("film.bin"))
          // A reader's requests are longer than those of a download in the background, and show more pauses.
          try journey.succeed(["cmp", "-n", "6000000", journey.at("film.bin"), "\(folder)/film.bin"])
          let bothAreUsed = eventually(timeout: 60) { Set(nginx.accesses.map(\.version)) == ["HTTP/2.0", "HTTP/1.1"] }
          #expect(bothAreUsed, "\(nginx.accesses)")
          try journey.unmount()
        }
      }
    }
  }

  /// What follows a lost packet waits for it in the kernel, though the server goes on: that pause says nothing of it. A
  /// server that gets no processor time pauses too, so it has three chances.
  @Test(.enabled(if: TestLine.isPossible && TestLine.hasBBR, "\(TestLine.reason) Or it has no BBR."))
  func aServerThatLossesDoNotSlowKeepsOneConnection() throws {
    try withJourney(.root) { journey in
      let folder = try journey.folder.makeFolder("origin")
      let certificate = try TestCertificate(in: journey.folder)
      var connections: [Int] = []
      while connections.count < 3, connections.last != 1 {
        let name = "film\(connections.count).bin"
        try journey.folder.write(Pattern.bytes(name: name, offset: 0, count: 32 << 20), to: "origin/\(name)")
        try withLine(roundTrip: 0.06, rate: 4e6, queue: 1_200_000, loss: 0.005, congestion: "bbr") { line in
          var settings = NginxSettings(.folder(folder))
          settings.certificate = certificate
          settings.line = line
          try withNginx(settings) { nginx in
            try journey.list("\(nginx.url("/\(name)"))\n")
            try journey.succeed(line.inClient + journey.mountCommand(["--cacert", certificate.authority]))
            try journey.succeed(["cmp", "-n", "\(24 << 20)", journey.at(name), "\(folder)/\(name)"])
            try journey.unmount()
            connections.append(Set(nginx.accesses.map(\.connection)).count)
          }
        }
      }
      #expect(connections.last == 1, "\(connections)")
    }
  }

  @Test func anUnknownCertificateIsRefused() throws {
    try withJourney { journey in
      try withOrigin { origin in
        origin.add("/a.mp4", size: 100_000)
        var settings = NginxSettings(.origin(origin))
        settings.certificate = try TestCertificate(in: journey.folder)
        try withNginx(settings) { nginx in
          try journey.mount(nginx.url("/a.mp4") + "\n")
          let result = try journey.run(["cat", journey.at("a.mp4")])
          #expect(!result.succeeded && result.output.isEmpty)
          #expect(!result.errors.contains("No such file"), "a listed file never seems to be absent: \(result.errors)")
          let file = try journey.status().file("a.mp4")
          #expect(file.state == "failed" && file.error?.contains("ertificate") == true, "\(file)")
          #expect(origin.log.totals.requests == 0)
        }
      }
    }
  }
}
