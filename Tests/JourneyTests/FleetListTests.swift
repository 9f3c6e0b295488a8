import Base
import Glibc
import TestSupport
import Testing

/// Mounts whose lists differ, and what their options make of the bucket.
@Suite("Mounts that share with other lists and options", .serialized) struct FleetListTests {
  private static func signature(_ number: Int) -> String {
    "X-Amz-Signature=\(String(repeating: "\(number)", count: 64))&X-Amz-Credential=key\(number)&X-Amz-Date=2026010\(number)"
  }

  @Test("Lists that overlap in part, with other names and signatures: the shared part comes once")
  func otherLists() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let origin = fleet.origin
        // One file at two places, which only id= says.
        for path in ["/f2.bin", "/mirror/scene.bin"] {
          var file = OriginResource(size: Fleet.size, pattern: "/f2.bin")
          file.tag = .fixed("\"scene\"")
          origin.set(path, file)
        }
        func line(_ path: String, _ number: Int, _ options: String...) -> String {
          ([origin.url("\(path)?\(Self.signature(number))")] + options).joined(separator: "\n  ") + "\n"
        }
        let first = try fleet.mount(
          [],
          list: line("/f0.bin", 1, "out=hunter2-mine.bin") + line("/f1.bin", 1, "out=hunter2-shared.bin")
            + line("/f2.bin", 1, "out=hunter2-scene.bin", "id=hunter2/scene"))
        let files = ["mine", "shared", "scene"].map { "hunter2-\($0).bin" }
        for (file, name) in zip(files, Fleet.names) {
          try first.isSame("\(first.mountpoint)/\(file)", fleet.folder.file(name))
        }
        fleet.waitUntilStored()
        let second = try fleet.mount(
          [],
          list: line("/f1.bin", 2, "dir=hunter2-folder", "out=same.bin")
            + line("/mirror/scene.bin", 2, "id=hunter2/scene"))
        let before = origin.log.totals.requests
        try second.isSame("\(second.mountpoint)/hunter2-folder/same.bin", fleet.folder.file("f1.bin"))
        try second.isSame("\(second.mountpoint)/scene.bin", fleet.folder.file("f2.bin"))
        #expect(origin.log.totals.requests == before, "the origin was asked for what is shared")
        for (member, names) in [(first, files.sorted()), (second, ["hunter2-folder", "scene.bin"])] {
          let told = try member.runProgram(["ls", member.mountpoint]).output
          #expect(told == names.map { $0 + "\n" }.joined())
        }
        for (name, object) in store.objects {
          let text = "\(name) \(object.meta) \(String(decoding: object.body.prefix(8192), as: UTF8.self))"
          for secret in ["hunter2", "scene.bin", "mirror", "X-Amz-Signature", "key1"] {
            #expect(!text.contains(secret), "\(secret) is in \(name)")
          }
        }
      }
    }
  }

  @Test("A mount that only reads writes nothing, and needs no origin for what is stored")
  func onlyReads() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let reader = ["--share-mode", "ro"]
        let stored = Array(Fleet.names.prefix(2))
        let first = try fleet.mount()
        try fleet.readAll([first], stored)
        fleet.waitUntilStored()
        try first.end()
        let (before, asked) = (store.objects.mapValues(\.etag), store.seen.count)
        let member = try fleet.mount(reader)
        let requests = fleet.origin.log.totals.requests
        try fleet.readAll([member], stored)
        #expect(fleet.origin.log.totals.requests == requests, "the origin was asked for what is stored")
        // What nobody stored comes from the origin, and stays here.
        try fleet.readAll([member])
        let said = try member.run(["status", member.mountpoint]).output
        #expect(said.contains("some/prefix: up, only read"), "\(said)")
        try member.end()
        #expect(store.objects.mapValues(\.etag) == before, "something was written")
        let others = store.seen.dropFirst(asked).filter { !["GET", "HEAD"].contains($0.method) }
        #expect(others.isEmpty, "\(others.map { "\($0.method) \($0.target)" })")
      }
    }
  }

  @Test("What goes up stays below --share-upload-limit")
  func uploadLimit() throws {
    try withFakeStore { store in
      try withFleet(store.endpoint, rate: nil) { fleet in
        let limit = 3 << 20
        try fleet.mountSharing(["--share-upload-limit", "3M"])
        let begun = Instant.now
        try fleet.readAll()
        let stored = {
          store.objects.filter { $0.key.contains("/mfs1/b/") }.reduce(0) { $0 + $1.value.body.count }
        }
        try waitUntil("the first block") { stored() > 0 }
        for _ in 0..<4 {
          sleep(seconds: 2)
          let bytes = stored()
          // The one that goes up may be there as soon as it begins.
          let most = Instant.now.seconds(since: begun) * Double(limit) + Double(4 << 20)
          #expect(Double(bytes) <= most, "\(bytes) bytes, of at most \(most)")
        }
      }
    }
  }

  @Test(
    "A store with a certificate of one's own: with --cacert it is shared through, and without status says why not",
    .enabled(if: Nginx.isInstalled))
  func ownAuthority() throws {
    try withFakeStore { store in
      try withTemporaryFolder { folder in
        let certificate = try TestCertificate(in: folder)
        var settings = NginxSettings(.folder(folder.path))
        (settings.certificate, settings.http2) = (certificate, false)
        settings.lines =
          "location / { proxy_pass \(store.endpoint); proxy_http_version 1.1; proxy_set_header Host $http_host; "
          + "client_max_body_size 0; }"
        try withNginx(settings) { nginx in
          try withFleet(nginx.url(), rate: nil) { fleet in
            let without = try fleet.mount()
            try fleet.readAll([without], [Fleet.names[0]])
            let said = try without.run(["status", without.mountpoint]).output
            fleet.expect(said.contains("certificate"), "status does not say why")
            #expect(store.seen.isEmpty)
            let trust = ["--cacert", certificate.authority]
            let first = try fleet.mountSharing(trust)
            try fleet.readAll([first])
            try without.end()
            #expect(eventually(timeout: 60) { store.objects.keys.count { $0.contains("/mfs1/b/") } == 18 })
            fleet.origin.stop()
            try fleet.readAll([try fleet.mountSharing(trust + ["--timeout", "60"])])
            #expect(store.signatureFaults.isEmpty, "\(store.signatureFaults)")
          }
        }
      }
    }
  }
}
