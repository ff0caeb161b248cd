// swift-tools-version: 6.2
import PackageDescription

// An expression that the type checker tries in more ways is an error, before an older compiler gives up at it. Counted, not timed: a busy
// machine judges as a quiet one. Older compilers count more for the same, and have a bound of their own.
#if compiler(>=6.3)
  let boundedTypeChecks: [SwiftSetting] = [.unsafeFlags(["-Xfrontend", "-solver-scope-threshold=50000"])]
#else
  let boundedTypeChecks: [SwiftSetting] = []
#endif

// The manifest is the architecture: arrows point down only. See docs/architecture.md.
// Asynchronous functions run where their caller runs: on the loop.
let strict: [SwiftSetting] =
  [.treatAllWarnings(as: .error), .enableUpcomingFeature("NonisolatedNonsendingByDefault")] + boundedTypeChecks

let package = Package(
  name: "meshpost",
  products: [
    .executable(name: "meshpostd", targets: ["meshpostd"]),
    .executable(name: "meshpost", targets: ["meshpost"]),
    .executable(name: "meshpost-hub", targets: ["meshpost-hub"]),
    .executable(name: "meshpost-radio", targets: ["meshpost-radio"]),
  ],
  dependencies: [
    .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
    .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1"),
    .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
    .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
    .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
  ],
  targets: [
    // Pure: no input or output, no clock, no Foundation.
    .target(name: "Timing", swiftSettings: strict),
    .target(name: "Release", swiftSettings: strict),
    .target(name: "Escaping", swiftSettings: strict),
    .target(name: "Exposition", swiftSettings: strict),
    .target(name: "Companion", dependencies: ["Timing"], swiftSettings: strict),
    .target(name: "RadioSession", dependencies: ["Companion", "Timing"], swiftSettings: strict),
    .target(name: "BluetoothSession", dependencies: ["Timing"], swiftSettings: strict),
    .target(name: "Delivery", dependencies: ["Companion", "Timing"], swiftSettings: strict),
    .target(name: "Alerts", dependencies: ["Timing"], swiftSettings: strict),

    // What C libraries give, each behind one wall.
    .systemLibrary(name: "CLinux"),
    .systemLibrary(name: "CSQLite", pkgConfig: "sqlite3", providers: [.apt(["libsqlite3-dev"])]),
    .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
    .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
    .systemLibrary(name: "CSodium", pkgConfig: "libsodium", providers: [.apt(["libsodium-dev"])]),
    .systemLibrary(name: "CPostgres", pkgConfig: "libpq", providers: [.apt(["libpq-dev"])]),
    .systemLibrary(name: "CBluetooth", providers: [.apt(["libbluetooth-dev"])]),
    // libdbus-1, loaded when it is first needed.
    .target(name: "CDBus"),
    // libcurl, likewise.
    .target(name: "CCurl"),
    .target(name: "SQLite", dependencies: ["CSQLite"], swiftSettings: strict),
    .target(name: "Deflate", dependencies: ["CZlib"], swiftSettings: strict),
    .target(name: "MeshCrypto", dependencies: ["Companion", "COpenSSL"], swiftSettings: strict),
    .target(name: "MeshIdentity", dependencies: ["Companion", "MeshCrypto", "CSodium"], swiftSettings: strict),

    // Languages and loops.
    .target(name: "JSON", swiftSettings: strict),
    .target(name: "TOML", swiftSettings: strict),
    .target(name: "Console", dependencies: ["Escaping"], swiftSettings: strict),
    .target(name: "Documents", dependencies: ["Escaping", "JSON"], swiftSettings: strict),
    .target(name: "EventLoop", dependencies: ["Escaping", "Timing", "CLinux"], swiftSettings: strict),
    .target(name: "ServiceManager", dependencies: ["CLinux", "Escaping", "Timing"], swiftSettings: strict),
    .target(
      name: "Proxies", dependencies: ["CCurl", "CLinux", "Escaping", "EventLoop", "Timing"], swiftSettings: strict),
    .target(name: "Streams", dependencies: ["EventLoop", "Timing", "COpenSSL", "CLinux"], swiftSettings: strict),
    .target(
      name: "HTTP",
      dependencies: ["Deflate", "Escaping", "EventLoop", "Proxies", "Streams", "Timing", "COpenSSL", "CLinux"],
      swiftSettings: strict),
    .target(
      name: "MQTT", dependencies: ["Escaping", "EventLoop", "HTTP", "Proxies", "Streams", "Timing"],
      swiftSettings: strict),

    .target(name: "DBus", dependencies: ["EventLoop", "Timing", "CDBus"], swiftSettings: strict),

    // The gateway.
    .target(
      name: "Transport",
      dependencies: [
        "Companion", "BluetoothSession", "CBluetooth", "DBus", "EventLoop", "ServiceManager", "Timing", "CLinux",
      ],
      swiftSettings: strict),
    .target(
      name: "Store",
      dependencies: [
        "Companion", "Documents", "Escaping", "RadioSession", "MeshCrypto", "SQLite", "JSON", "Timing", "CLinux",
      ],
      swiftSettings: strict),
    .target(
      name: "Sync",
      dependencies: ["Companion", "RadioSession", "MeshCrypto", "Transport", "Store", "EventLoop", "Timing"],
      swiftSettings: strict),
    .target(
      name: "Messaging",
      dependencies: [
        "Companion", "Delivery", "Escaping", "JSON", "MeshCrypto", "RadioSession", "Store", "Sync", "EventLoop",
        "Timing",
        "CLinux",
      ], swiftSettings: strict),
    .target(
      name: "Relay",
      dependencies: [
        "CLinux", "Companion", "Deflate", "Documents", "Escaping", "MeshCrypto", "ServiceManager", "Store", "HTTP",
        "JSON",
        "MQTT",
        "Proxies", "Streams", "EventLoop", "Timing",
      ],
      swiftSettings: strict),
    .target(
      name: "Proxy",
      dependencies: [
        "CLinux", "Companion", "EventLoop", "MeshCrypto", "Messaging", "RadioSession", "Store", "Streams", "Sync",
        "Timing",
      ],
      swiftSettings: strict),
    .target(
      name: "Control",
      dependencies: [
        "Alerts", "BluetoothSession", "Companion", "Delivery", "Documents", "Escaping", "Exposition", "Messaging",
        "Proxy", "Store",
        "Sync",
        "Relay",
        "Transport",
        "HTTP", "JSON", "TOML",
        "EventLoop", "Timing", "Web",
      ],
      swiftSettings: strict),
    // Pages in a browser: their files lie in Sources/Pages, and are no Swift.
    .target(
      name: "Web", dependencies: ["COpenSSL", "Escaping", "EventLoop", "HTTP", "JSON", "MeshCrypto", "Timing"],
      swiftSettings: strict),
    .target(
      name: "Gateway",
      dependencies: [
        "Alerts", "Companion", "Control", "Delivery", "Documents", "Escaping", "JSON", "Messaging", "Proxies", "Proxy",
        "RadioSession", "Relay",
        "Release", "ServiceManager", "Sync",
        "Store", "Transport",
        "HTTP", "TOML", "EventLoop", "Timing", "Web", "CLinux",
      ],
      swiftSettings: strict),

    // The other end of the link, and the other end of the wire.
    .target(
      name: "VirtualRadio",
      dependencies: ["Companion", "MeshCrypto", "MeshIdentity", "EventLoop", "JSON", "Timing", "CLinux"],
      swiftSettings: strict),
    .target(
      name: "Hub",
      dependencies: [
        "Alerts", "CLinux", "COpenSSL", "CPostgres", "Console", "Deflate", "Documents", "Escaping", "Exposition",
        "HTTP", "MeshCrypto", "Release",
        "EventLoop", "ServiceManager", "SQLite", "Streams", "JSON", "Timing", "TOML", "Web",
        .product(name: "Hummingbird", package: "hummingbird"),
        .product(name: "Logging", package: "swift-log"), .product(name: "NIOCore", package: "swift-nio"),
        .product(name: "NIOHTTP1", package: "swift-nio"), .product(name: "NIOPosix", package: "swift-nio"),
        .product(name: "NIOWebSocket", package: "swift-nio"),
        .product(name: "NIOHTTPTypesHTTP1", package: "swift-nio-extras"),
        .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
      ],
      swiftSettings: strict),

    // Programs: wiring, arguments, exit codes.
    .executableTarget(
      name: "meshpost-bench",
      dependencies: ["Companion", "EventLoop", "JSON", "MeshCrypto", "SQLite", "Store", "Timing", "Transport"],
      path: "Sources/meshpost-bench", swiftSettings: strict),
    .executableTarget(name: "meshpostd", dependencies: ["Gateway", "EventLoop"], swiftSettings: strict),
    .executableTarget(
      name: "meshpost",
      dependencies: [
        "CLinux", "COpenSSL", "Companion", "Console", "Escaping", "EventLoop", "HTTP", "JSON", "MeshCrypto", "Release",
        "TOML", "Timing", "Transport", "Web",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ], swiftSettings: strict),
    .executableTarget(
      name: "meshpost-hub",
      dependencies: [
        "Console", "Escaping", "EventLoop", "Hub", "HTTP", "JSON", "MQTT", "Release", "ServiceManager", "Streams",
        "Timing",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: strict),
    .executableTarget(
      name: "meshpost-radio",
      dependencies: [
        "Console", "VirtualRadio", "EventLoop", "CLinux", "MeshCrypto", "Release", "Timing",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
      ],
      swiftSettings: strict),

    .target(
      name: "TestSupport", dependencies: ["CLinux", "Companion", "EventLoop", "Store", "Timing"],
      path: "Tests/TestSupport",
      swiftSettings: strict),
    .testTarget(
      name: "CompanionTests", dependencies: ["Companion", "MeshCrypto", "TestSupport", "Timing"], swiftSettings: strict),
    .testTarget(
      name: "StoreTests",
      dependencies: ["Companion", "Documents", "JSON", "MeshCrypto", "SQLite", "Store", "TestSupport", "Timing"],
      swiftSettings: strict),
    .testTarget(
      name: "WebTests", dependencies: ["EventLoop", "HTTP", "JSON", "TestSupport", "Timing", "Web"],
      swiftSettings: strict),
    .testTarget(
      name: "RelayTests",
      dependencies: [
        "Companion", "EventLoop", "HTTP", "JSON", "MeshCrypto", "Relay", "SQLite", "Store", "Streams", "TestSupport",
        "Timing",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "ProgramTests",
      dependencies: [
        "Companion", "CLinux", "Deflate", "Escaping", "EventLoop", "MeshCrypto", "HTTP", "JSON", "Streams",
        "TestSupport",
        "Timing",
        .product(name: "ArgumentParser", package: "swift-argument-parser"),
        "meshpostd",
        "meshpost",
        "meshpost-hub", "meshpost-radio",
      ], swiftSettings: strict),
    // What begins and ends a thousand times leaves nothing behind: in a process of their own, for they count what the process holds.
    .testTarget(
      name: "LifetimeTests",
      dependencies: ["EventLoop", "HTTP", "MQTT", "Relay", "SQLite", "Store", "Streams", "TestSupport", "Timing"],
      swiftSettings: strict),
    .testTarget(
      name: "EventLoopTests", dependencies: ["CLinux", "EventLoop", "Streams", "TestSupport", "Timing"],
      swiftSettings: strict),
    .testTarget(
      name: "HTTPTests", dependencies: ["CLinux", "Deflate", "EventLoop", "HTTP", "Streams", "TestSupport", "Timing"],
      swiftSettings: strict),
    .testTarget(
      name: "BluetoothSessionTests", dependencies: ["BluetoothSession", "Timing"], swiftSettings: strict),
    .testTarget(name: "DeliveryTests", dependencies: ["Companion", "Delivery", "Timing"], swiftSettings: strict),
    .testTarget(
      name: "MessagingTests",
      dependencies: [
        "Companion", "Delivery", "EventLoop", "JSON", "MeshCrypto", "MeshIdentity", "Messaging", "RadioSession",
        "SQLite", "Store",
        "Sync", "TestSupport", "Timing", "Transport", "VirtualRadio",
      ], swiftSettings: strict),
    .testTarget(
      name: "DBusTests", dependencies: ["DBus", "EventLoop", "TestSupport", "Timing"], swiftSettings: strict),
    .testTarget(
      name: "FuzzTests",
      dependencies: [
        "Companion", "HTTP", "Hub", "JSON", "Messaging", "RadioSession", "Store", "TOML", "TestSupport", "Timing",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "SyncTests",
      dependencies: [
        "Companion", "EventLoop", "RadioSession", "Store", "Sync", "TestSupport", "Timing", "Transport", "VirtualRadio",
      ], swiftSettings: strict),
    .testTarget(
      name: "TransportTests",
      dependencies: [
        "BluetoothSession", "CLinux", "Companion", "DBus", "EventLoop", "TestSupport", "Timing", "Transport",
        "VirtualRadio",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "VirtualRadioTests", dependencies: ["Companion", "EventLoop", "TestSupport", "Timing", "VirtualRadio"],
      swiftSettings: strict),
    .testTarget(
      name: "HubTests",
      dependencies: [
        "Deflate", "Documents", "Hub", "JSON", "Relay", "SQLite", "Store", "TestSupport", "Timing", "Web",
        .product(name: "NIOCore", package: "swift-nio"), .product(name: "NIOWebSocket", package: "swift-nio"),
      ],
      swiftSettings: strict),
    .testTarget(
      name: "ControlTests",
      dependencies: [
        "Control", "EventLoop", "JSON", "Messaging", "Proxy", "Relay", "Store", "Sync", "TestSupport", "Transport",
      ], swiftSettings: strict),
    .testTarget(
      name: "ProxiesTests", dependencies: ["CLinux", "EventLoop", "Proxies", "TestSupport", "Timing"],
      swiftSettings: strict),
    .testTarget(
      name: "ProxyTests",
      dependencies: [
        "Companion", "EventLoop", "Messaging", "Proxy", "Store", "Streams", "Sync", "TestSupport", "Timing",
        "Transport", "VirtualRadio",
      ], swiftSettings: strict),
    .testTarget(
      name: "MQTTTests", dependencies: ["EventLoop", "MQTT", "TestSupport", "Timing"], swiftSettings: strict),
    .testTarget(
      name: "ServiceManagerTests", dependencies: ["CLinux", "ServiceManager", "TestSupport"], swiftSettings: strict),
    .testTarget(name: "TimingTests", dependencies: ["Timing"], swiftSettings: strict),
    .testTarget(name: "AlertsTests", dependencies: ["Alerts", "TestSupport", "Timing"], swiftSettings: strict),
    .testTarget(
      name: "RadioSessionTests", dependencies: ["Companion", "RadioSession", "TestSupport", "Timing"],
      swiftSettings: strict),
    .testTarget(name: "EscapingTests", dependencies: ["Escaping", "JSON"], swiftSettings: strict),
    .testTarget(name: "LanguageTests", dependencies: ["JSON", "TOML"], swiftSettings: strict),
    .testTarget(
      name: "GatewayTests",
      dependencies: [
        "Companion", "EventLoop", "Gateway", "JSON", "Messaging", "Proxies", "Relay", "SQLite", "Store", "Streams",
        "TestSupport",
        "Timing",
        "Transport", "VirtualRadio",
      ],
      swiftSettings: strict),
    .testTarget(
      name: "MeshCryptoTests", dependencies: ["Companion", "MeshCrypto", "MeshIdentity", "TestSupport"],
      swiftSettings: strict),
  ],
  swiftLanguageModes: [.v6]
)
