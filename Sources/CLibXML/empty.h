// Nothing: libxml2's headers stay in the C of CXML. They bring those of ICU along, of which Swift's Foundation has others.
#pragma once
