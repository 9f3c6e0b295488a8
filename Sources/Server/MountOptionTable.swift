import Glibc
import Manifest
import Reading

extension MountOption {
  /// Every option, in the order of help. The help of each says its unit; the defaults are those of ``MountRequest``.
  package static let all: [MountOption] = [
    MountOption(
      "manifest", of: "FILE|URL", .lists, in: .list, onlyOnCommandLine: true,
      help: """
        Read the list of files from FILE: one URL per line, or another format, which mediafs recognizes by the \
        content. FILE may be a folder of .strm files, or - for standard input. With NAME=FILE, which may be repeated, \
        the list shows in the folder NAME. Required.
        """,
      details: """
        A URL (http or https) is asked for again after --fresh; its last good copy is kept for mounts without network. \
        It may be the URL of a server's folder. Write a path with an equals sign as ./a=b. For the options of an entry \
        in a plain list (out, dir, header, load-cookies and others), see docs/MANIFEST.md.
        """),
    MountOption(
      "format", of: "NAME", .optional(\.format, .listFormat), in: .list,
      choices: ListFormat.allCases.map { ($0.rawValue, $0.meaning) },
      help: "Read the list as that format, whatever its content looks like.", standard: "recognized by the content"),
    MountOption(
      "base-url", of: "URL", .optional(\.baseURL, .text), in: .list,
      help: "Resolve relative URLs and paths of a list against URL."),
    MountOption(
      "strict", .flag(\.strict), in: .list,
      help: "Refuse a list with an invalid line. Without this option, mediafs warns and leaves the line out."),

    MountOption(
      configName, of: "NAME", .helper, in: .list, onlyOnCommandLine: true,
      help: """
        Take the options from the file NAME.conf in /etc/mediafs (root) or ~/.config/mediafs, which may name the list \
        and the mountpoint too. What the command line gives goes before.
        """,
      details: "The section CONFIGURATION FILES describes the files."),

    MountOption(
      "store", of: "DIR", .optional(\.storage.store, .path), in: .storage,
      help: "Keep downloaded data in DIR.",
      standard: "a folder per mountpoint in $XDG_DATA_HOME/mediafs or ~/.local/share/mediafs",
      details: "For root without HOME, the default is in /var/lib/mediafs."),
    MountOption(
      "library", of: "DIR", .optional(\.storage.library, .path), in: .storage,
      help: "Place completed files in DIR, under the path that they have in the mount.",
      standard: "the folder library in the store"),
    MountOption(
      "max-size", of: "SIZE", .optional(\.storage.maxSize, .size()), in: .storage,
      help: """
        Have at most SIZE on disk, complete files included. What was least recently used is deleted first, block by \
        block; nothing that is open or kept.
        """,
      standard: "what the store has already, and half of what is free, when it is first mounted",
      details: "With nothing left to delete, programs read through memory, and 'mediafs status' says why."),
    MountOption(
      "evict", of: "WHAT", .value(\.storage.evicts, .policy), in: .storage,
      choices: [
        ("partial", "parts of unfinished files"),
        ("complete", "complete files too, if this store placed them and nobody changed them"),
      ],
      help: "What may be deleted to keep to --max-size and --min-free.",
      standard: ReadingOptions().limits.evicts.rawValue,
      details: "Files that were in the library before, or that have another name (a hard link), are never deleted."),
    MountOption(
      "max-age", of: "DURATION", .optional(\.storage.maxAge, .duration), in: .storage,
      help: "Delete what nobody has used for DURATION (30s, 10m, 2h, 90d), of what --evict names.",
      standard: "no limit"),
    MountOption(
      "min-free", of: "SIZE", .value(\.storage.minFree, .size()), in: .storage,
      help: "Keep at least SIZE free on the store's disk.", standard: "\(ReadingOptions().minimumFree >> 30)G"),

    MountOption(
      "continue", of: "WHEN", .value(\.downloads.continuation, .policy), in: .downloads,
      choices: [
        ("playing", "once the file is being played"), ("always", "once the file is opened"),
        ("open", "as playing, but only while a program has it open"), ("never", "only what programs read"),
      ],
      help: "When to download the rest of a file in the background.", standard: ReadingOptions().continuation.rawValue),
    MountOption(
      "next", of: "N", .value(\.downloads.next, .number(0...16)), in: .downloads,
      help: """
        While a file is being played, download what programs first read of the next N files of its folder, and their \
        first 20 seconds; all of the next one if it would come too late otherwise. With 0, nothing: 0 to 16.
        """,
      standard: "\(ReadingOptions().next)",
      details: "Nothing either with --continue=never. What programs read, and the rest of open files, come first."),
    MountOption(
      "timeout", of: "SECONDS", .value(\.downloads.timeout, .seconds(1...86_400)), in: .downloads,
      help: "How long a read may wait without receiving data before it fails: 1 to 86400 seconds.",
      standard: "\(Int(ReadingOptions().timeout))"),
    MountOption(
      "fresh", of: "DURATION", .value(\.downloads.fresh, .duration), in: .downloads,
      help: """
        When an unfinished file is opened whose start is missing, and the server has not answered for it for DURATION, \
        first ask whether it changed, for a second at most. After DURATION, lists by URL and servers' folders are also \
        asked for again. A number of seconds, or with a unit: 30s, 10m, 2h, 1d.
        """,
      standard: "\(Int(ReadingOptions().fresh) / 60)m",
      details: "With 0, an answer of the last second still counts."),
    MountOption(
      "limit-rate", of: "SIZE", .optional(\.downloads.limitRate, .size(least: 1)), in: .downloads,
      help: "Download at most SIZE per second, over all files.", standard: "no limit"),
    MountOption(
      "max-connections", of: "N", .optional(\.downloads.maxConnections, .number(1...1024)), in: .downloads,
      help: "Open at most N HTTP/1.1 connections to one host: 1 to 1024.", standard: "\(ReadingOptions().connections)"),

    MountOption(
      "header", of: "FIELD", .list(\.origins.headers, .header), in: .requests,
      help: """
        Send the header FIELD, 'Name: value', to the hosts that the list names. May be repeated. With @FILE, send each \
        line of FILE: secrets then stay out of the process list.
        """,
      details: "A header goes to no other host, also not after a redirect."),
    MountOption(
      "cacert", of: "FILE", .optional(\.origins.certificateFile, .path), in: .requests,
      help: "Trust the CA certificates in FILE (PEM).", standard: "those of the system"),
    MountOption(
      "netrc-file", of: "FILE", .optional(\.origins.netrcFile, .path), in: .requests,
      help: "Read user names and passwords from FILE.", standard: "~/.netrc",
      details: "The mount notices a change of the file after five seconds at most."),

    MountOption(
      "resolver", of: "NAME=CMD", .several(\.resolvers, .resolver), in: .requests,
      help: """
        Have the program CMD give the links of the entries that say resolver=NAME, and new ones before they end. May be \
        repeated. CMD is a program (a path, or a name in PATH) and its arguments.
        """,
      details: """
        mediafs-resolve-ytdlp is such a program, for the pages that yt-dlp knows. The server speaks to it by lines of \
        JSON; docs/RESOLVERS.md describes them.
        """),
    MountOption(
      "resolve", of: "NAME", .optional(\.resolve, .resolverName), in: .requests,
      help: "Have the resolver NAME give the links of all entries that name none: of a feed whose links expire, say.",
      standard: "their own links"),

    MountOption(
      "share", of: "s3://BUCKET/PREFIX", .optional(\.share.place, .text), in: .sharing,
      help: """
        Share what is downloaded with other machines that mount the same list, through an S3-compatible object store: \
        each byte comes from its origin once for all of them.
        """,
      standard: "with nobody",
      details: """
        The keys of the store are those of the AWS command line: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a \
        profile in ~/.aws. All machines have the same key of the fleet. Files whose origin sends no strong ETag are not \
        shared.
        """),
    MountOption(
      "share-endpoint", of: "URL", .optional(\.share.endpoint, .text), in: .sharing,
      help: "Ask the object store at URL.", standard: "AWS_ENDPOINT_URL, the profile's, or AWS"),
    MountOption(
      "share-region", of: "REGION", .optional(\.share.region, .text), in: .sharing,
      help: "Sign requests to the object store for REGION.", standard: "AWS_REGION, the profile's, or us-east-1"),
    MountOption(
      "share-key", of: "FILE", .optional(\.share.keyFile, .path), in: .sharing,
      help: "Read the fleet's key, 16 bytes of secret text or more, from FILE.", standard: "MEDIAFS_FLEET_KEY"),
    MountOption(
      "share-mode", of: "MODE", .value(\.share.mode, .policy), in: .sharing,
      choices: [("rw", "take what others stored, and store for others"), ("ro", "only take what others stored")],
      help: "What the mount does in the object store.", standard: MountRequest.Share().mode.rawValue),
    MountOption(
      "share-upload-limit", of: "SIZE", .optional(\.share.uploadLimit, .size(least: 1)), in: .sharing,
      help: "Store at most SIZE per second for others.", standard: "no limit"),

    MountOption(
      "foreground", .flag(\.foreground), in: .server,
      help: "Stay in the foreground and log to standard error. SIGINT and SIGTERM unmount."),
    MountOption(
      serviceName, .helper, in: .server, onlyOnCommandLine: true,
      help: """
        For units of systemd: stay in the foreground, tell the service manager how it goes, and leave the mount with it \
        when the service restarts or dies. docs/SERVICE.md has the units.
        """),
    MountOption(
      checkName, .helper, in: .server, onlyOnCommandLine: true,
      help: """
        Check the options, and end: nothing is mounted, and no list is read ('mediafs check' reads it). With --config \
        NAME it says whether a restart of the service will find them right.
        """),
    MountOption(
      "log-file", of: "FILE", .optional(\.log.file, .path), in: .server,
      help: "Write the log to FILE.", standard: "mediafs.log in the store, unless in the foreground",
      details: "When the log has 10 MiB, its text moves to FILE.1."),
    MountOption(
      "metrics-file", of: "FILE", .optional(\.metricsFile, .path), in: .server,
      help: """
        Write the server's numbers to FILE every 15 seconds, in Prometheus' text format, as its node exporter reads \
        them; 'mediafs metrics' prints the same.
        """,
      standard: "no file",
      details: """
        Each time, a new FILE takes the place of the old one. An unmount removes it. With user=NAME, the server may \
        write to the whole folder of FILE, so it must not be NAME's home: give it a folder of its own.
        """),
    MountOption(
      "on", of: "complete CMD", .optional(\.onComplete, .completionCommand), in: .server,
      help: """
        Start the program CMD for each file that becomes complete. CMD is one word for the shell: a program (a path, or \
        a name in PATH) and its arguments. The program learns from its environment which file it is: \
        MEDIAFS_FILE is its path in the library, MEDIAFS_PATH that in the mount.
        """,
      standard: "no program",
      details: "The section PROGRAMS FOR EVENTS says how CMD is split, what programs get, and when they end."),
    MountOption(
      "watchdog", of: "SECONDS", .value(\.watchdog, .seconds(0...86_400)), in: .server,
      help: """
        Replace a server that has hung for SECONDS, while its disk answers; readers only wait for the next one. With 0, \
        never: 0 to 86400.
        """,
      standard: "10", details: "After each replacement, the next server may hang for twice as long."),
    MountOption(
      "verbose", letter: "v", .count(\.log.verbosity), in: .server, help: "Log more: each request and how it ends."),

    MountOption(
      "allow_other", .flag(\.access.allowOther), in: .mount,
      help: "Let other users use the mount. If you are not root, /etc/fuse.conf must contain user_allow_other."),
    MountOption(
      "uid", of: "USER", .optional(\.access.uid, .owner("user") { getpwnam($0)?.pointee.pw_uid }), in: .mount,
      help: "Show USER, a name or a number, as the owner of the files.", standard: "the mount's owner"),
    MountOption(
      "gid", of: "GROUP", .optional(\.access.gid, .owner("group") { getgrnam($0)?.pointee.gr_gid }), in: .mount,
      help: "Show GROUP, a name or a number, as the group of the files.", standard: "the mount owner's group"),
    MountOption(
      "umask", of: "BITS", .optional(\.access.umask, .permissions), in: .mount,
      help: "Remove these permission bits, in octal, from files and folders.", standard: "0"),
    MountOption(
      userName, of: "NAME", .helper, in: .mount,
      help: "For root only: run the server as the user NAME, who also owns the mount.",
      details: """
        Only the mount helper stays root. mediafs reads the files that options name, header files too, with the \
        rights of NAME; they must be plain files.
        """),
    MountOption(
      sourceName, of: "NAME", .helper, in: .mount,
      help: "Show NAME as the source in the table of mounts.", standard: "the path of the list"),
  ]

  /// What messages about the program for completed files begin with.
  static let onComplete = "--on complete"
  /// What messages about the programs that give links begin with.
  static let resolver = "--resolver"
  /// The option that names who the server runs as.
  package static let userName = "user"
  /// The option that names a file with options.
  package static let configName = "config"
  /// The option for service managers.
  package static let serviceName = "service"
  /// The option that checks the others.
  package static let checkName = "check"
  /// The option that names the mount's source.
  package static let sourceName = "fsname"
}
