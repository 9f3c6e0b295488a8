import Base
import TestSupport
import Testing

@testable import Server
@testable import mediafs

/// Option strings and option files that mean harm.
@Suite("Hostile options")
struct OptionFuzzTests {
  private static let lists: [[UInt8]] = [
    "ro,allow_other,uid=1000,gid=0,umask=022,fsname=a\\,b,store=/s,header=X: y,timeout=5",
    "nosuid,nodev,noexec,context=\"system_u:object_r:a:s0:c1\\,c2\",x-systemd.automount,_netdev,max-size=1.5GiB",
  ].map { Array($0.utf8) }
  private static let words = tokens(
    ",", "\\", "\\,", "=", "fd=3", "user_id=0", "allow_other", "rootmode=40000", "suid", "dev", "exec", "rw", "fsname=",
    "subtype=x", "context=", "\0", "\n", "\u{301}", "\"", "umask=777", "uid=-1", "uid=4294967296", "timeout=nan",
    "timeout=inf", "max-size=9223372036854775807G", "limit-rate=0", "blkdev", "auto_unmount", "remount", "x-",
    "header=\r")

  /// What libfuse would see, split as it splits: at commas that no backslash escapes.
  private func split(_ list: String) -> [String] {
    var parts = [""]
    var isEscaped = false
    for scalar in list.unicodeScalars {
      if !isEscaped, scalar == "," {
        parts.append("")
      } else {
        parts[parts.count - 1].unicodeScalars.append(scalar)
      }
      isEscaped = !isEscaped && scalar == "\\"
    }
    return parts
  }

  @Test func noOptionSmugglesInAnother() {
    let own: Set = ["ro", "rw", "subtype=mediafs", "default_permissions", "max_read=65536", "allow_other"]
    let plain: Set = [
      "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "diratime", "nodiratime", "relatime",
      "norelatime", "strictatime", "nostrictatime",
    ]
    var taken = 0
    Fuzzing("options", cases: 4000).run { random, place in
      let bytes = random.mutated(Self.lists.randomElement(using: &random) ?? [], tokens: Self.words)
      let list = String(decoding: bytes, as: UTF8.self)
      var mount = MountOptions()
      mount.sloppy = random.oneIn(2)
      mount.request.manifest = random.oneIn(2) ? "/m,rw\\,suid" : "/m\\"
      do throws(CommandError) {
        for (name, value) in MountOptions.split(list) { try mount.take(name, value, isMountOption: true) }
      } catch {
        return
      }
      taken += 1
      for part in split(mount.libfuseOptions) where !own.contains(part) && !plain.contains(part) {
        let name = part.prefix { $0 != "=" }
        #expect(
          ["fsname", "context", "fscontext", "defcontext", "rootcontext"].contains(String(name)), "\(place): \(part)")
      }
      #expect(mount.request.downloads.timeout.isFinite, "\(place)")
      do {
        #expect(try MountRequest(decoding: withPaths(mount.request).encoded()) == withPaths(mount.request), "\(place)")
      } catch { Issue.record("\(place): \(error)") }
    }
    #expect(taken > 0)
  }

  private func withPaths(_ request: MountRequest) -> MountRequest {
    var request = request
    request.mountpoint = "/m"
    request.manifest = "/x"
    return request
  }

  @Test func everyOptionsFileIsReadOrRefused() {
    var request = MountRequest(mountpoint: "/m", manifest: "-")
    request.origins.headers = [HTTPHeader(name: "X", value: "secret")]
    request.storage.store = "/s"
    request.access.umask = 7
    let good = request.encoded()
    let words =
      tokens("timeout", "header", "\u{0}\u{0}\u{0}\u{0}", "verbose") + [[0xFF, 0xFF, 0xFF, 0xFF], [4, 0, 0, 0]]
    var read = 0
    Fuzzing("request", cases: 6000).run { random, place in
      let bytes = random.oneIn(5) ? random.bytes(100) : random.mutated(good, tokens: words)
      do throws(ServerError) {
        _ = try MountRequest(decoding: bytes)
        read += 1
      } catch {
        #expect(!error.description.contains("secret"), "\(place)")
      }
    }
    #expect(read > 0)
  }

  /// The table of mounts has names that others chose.
  @Test func everyMountTableIsRead() {
    let line = "36 35 0:98 / /mnt\\040x rw,noatime shared:1 - fuse.mediafs /m\\134 ro,user_id=0\n"
    let words = tokens(" - ", " ", "\\", "\\0", "\\999", "\\777", "\n", "-", "fuse.mediafs", "0:", ":", "\u{301}", "\0")
    Fuzzing("mountinfo", cases: 3000).run { random, _ in
      let table = MountTable.parse(random.mutated(Array((line + line).utf8), tokens: words))
      #expect(table.count <= 8)
    }
  }
}
